// The log of a run: one JSON object a line and step. Internal.
#pragma once
#include <filesystem>
#include <heed/core/dtype.hpp>
#include <heed/optim/metrics.hpp>
#include <optional>
#include <string>

namespace heed::detail {

struct LogEntry {
  Index step;
  double loss, lr, grad_norm, tokens_per_second;
  std::optional<double> val_loss;
  Metrics val_metrics;  // the others, written as val_NAME
};

class RunLog {
 public:
  // Opens `path` for a run that goes on after `step`: 0 empties the file; otherwise its lines behind that step are cut
  // off, and an Error is thrown where one of them is missing between the first and that step. An empty path is no log.
  RunLog(const std::filesystem::path& path, Index step);
  ~RunLog();
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  void write(const LogEntry& entry);  // throws Error where the line cannot be written
  void sync();                        // to disk, with its name: before a checkpoint of the same step

 private:
  std::filesystem::path path_;
  int file_ = -1;
  bool named_ = false;  // its folder was synced
};

}  // namespace heed::detail

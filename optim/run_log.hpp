// The log of a run: one JSON object a line and step. Internal.
#pragma once
#include <filesystem>
#include <heed/core/dtype.hpp>
#include <heed/data/disk.hpp>
#include <heed/optim/metrics.hpp>
#include <optional>
#include <string>
#include <vector>

namespace heed::detail {

struct LogEntry {
  Index step;
  double loss, lr, grad_norm, tokens_per_second;
  std::optional<double> val_loss;
  Metrics val_metrics;  // the others, written as val_NAME
};

// The log of a run that goes on after steps with these losses: none begins it anew, otherwise its lines behind them go
// with the first write. Error where a line is missing between the first and the last of these steps, or where it tells
// another loss of the last. An empty path is no log.
class RunLog : public LogFile {
 public:
  RunLog(const std::filesystem::path& path, const std::vector<double>& losses);
  void write(const LogEntry& entry);
};

}  // namespace heed::detail

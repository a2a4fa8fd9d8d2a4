// The log that run() writes: one JSON object per line, one line per step. Private to optim/run.
#pragma once
#include <heed/data/detail/disk.hpp>
#include <heed/optim/run/options.hpp>
#include <heed/optim/run/result.hpp>
#include <map>
#include <string>
#include <vector>

namespace heed::detail {

// The log of a run that continues after steps with these losses. Without losses, a new log begins. Otherwise the first
// write removes the lines after these steps. Throws Error if a line is missing between the first line and the last of
// these steps, or if the log has another loss for the last step. An empty path means no log.
class RunLog : public LogFile {
 public:
  RunLog(const std::filesystem::path& path, const std::vector<double>& losses);

  // Both functions return a warning or an empty text. If another program deleted the log, cut it, or replaced it by
  // lines of this run, the missing lines are written again from `history`. If the file is another file now, the log
  // ends. Lines that cannot be written are written later; if the log is a stream, the functions throw Error instead.
  std::string write(const RunStep& step, const RunHistory& history);  // `history` includes the step
  std::string sync(const RunHistory& history);
  // The reason if lines are missing; else empty.
  const std::string& error() const { return error_; }

 private:
  std::string error_;
  bool ended_ = false;
  std::map<Index, std::string> unwritten_ = {};  // lines by step

  std::string repair(const RunHistory& history, Index steps);
  template <class F>
  std::string guarded(const F& work);  // returns work(), or a warning if it throws Error
};

}  // namespace heed::detail

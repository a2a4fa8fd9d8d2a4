// The log of a run: one JSON object per line and step. Internal.
#pragma once
#include <heed/data/detail/disk.hpp>
#include <heed/optim/run_loop.hpp>
#include <map>
#include <string>
#include <vector>

namespace heed::detail {

// The log of a run that goes on after steps with these losses: none begins it anew, otherwise its lines behind them go
// with the first write. Error where a line is missing between the first and the last of these steps, or where it tells
// another loss of the last. An empty path is no log.
class RunLog : public LogFile {
 public:
  RunLog(const std::filesystem::path& path, const std::vector<double>& losses);

  // Both return a warning; empty: none. A log that another program deleted, cut, or replaced by lines of this run gets
  // the lines that it lacks, as `history` has them. Where the file is another one by now, the log ends. Lines that
  // cannot be written are written later, whole; Error where the log is a stream.
  std::string write(const RunStep& step, const RunHistory& history);  // which has the step
  std::string sync(const RunHistory& history);
  // Why lines are missing; empty: none are.
  const std::string& error() const { return error_; }

 private:
  std::string error_;
  bool ended_ = false;
  std::map<Index, std::string> unwritten_ = {};  // lines, by their steps

  std::string repair(const RunHistory& history, Index steps);
  template <class F>
  std::string guarded(const F& work);  // work(), or a warning where it throws Error
};

}  // namespace heed::detail

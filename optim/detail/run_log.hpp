// The log of a run: one JSON object per line and step. Internal.
#pragma once
#include <heed/data/detail/disk.hpp>
#include <heed/optim/run_loop.hpp>

namespace heed::detail {

// The log of a run that goes on after steps with these losses: none begins it anew, otherwise its lines behind them go
// with the first write. Error where a line is missing between the first and the last of these steps, or where it tells
// another loss of the last. An empty path is no log.
class RunLog : public LogFile {
 public:
  RunLog(const std::filesystem::path& path, const std::vector<double>& losses);
  void write(const RunStep& step);
};

}  // namespace heed::detail

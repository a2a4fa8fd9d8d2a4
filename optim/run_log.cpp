#include <heed/optim/run_log.hpp>
//
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <heed/core/check.hpp>
#include <heed/data/disk.hpp>
#include <nlohmann/json.hpp>

namespace heed::detail {
namespace {

using Json = nlohmann::ordered_json;  // writes what is not finite as null

// The step that a line is the entry of; 0 where it is none.
Index step_of(const std::string& line) {
  const Json entry = Json::parse(line, nullptr, false);
  const bool known = entry.is_object() && entry.contains("step") && entry["step"].is_number_integer();
  return known ? entry["step"].get<Index>() : 0;
}

// Whether this is the first line of a log that begins with the entry of `step`, and that was never synced: broken off
// somewhere, where the program was killed, or with zeros for what was not on the disk yet when the power went.
bool is_left_of_entry(const std::string& line, bool whole, Index step) {
  const std::string begin = "{\"step\":" + std::to_string(step) + ",", text = line.substr(0, line.find('\0'));
  if (whole && text == line) return false;
  const bool is_text = std::all_of(line.begin(), line.end(), [](unsigned char c) { return c == 0 || c >= ' '; });
  return is_text && (text.starts_with(begin) || begin.starts_with(text));
}

// Where the line of `step` ends in the log; 0 where the log begins behind it. Each line is of the step after the line
// before. The first is of any step up to `step` + 1, as a run that was resumed without its log began a new one.
std::uintmax_t end_of_step(const std::filesystem::path& path, Index step) {
  std::ifstream file(path, std::ios::binary);
  require(file.good(), "log: ", path.string(), " cannot be read: ", std::strerror(errno));
  std::string line;
  std::uintmax_t end = 0;
  Index of = 0;  // the step of the line before
  for (Index number = 1; of < step; ++number) {
    const bool whole = static_cast<bool>(std::getline(file, line)) && !file.eof();
    if (number == 1 && is_left_of_entry(line, whole, step + 1)) return 0;
    require(whole, "log: ", path.string(), " ends before step ", of + 1, " but the checkpoint is of step ", step,
            "; give the log that belongs to it, or another file");
    const Index found = step_of(line), last = number == 1 ? step + 1 : of + 1;
    require(found > of && found <= last, "log: line ", number, " of ", path.string(), " is not the entry of step ",
            of + 1, number == 1 ? " or of a later one up to " + std::to_string(last) : "",
            "; give the log that belongs to the checkpoint, or another file");
    if (found > step) return 0;
    end += line.size() + 1;
    of = found;
  }
  return end;
}

}  // namespace

RunLog::RunLog(const std::filesystem::path& path, Index step) : LogFile(path) {
  if (step > 0 && !path.empty() && !is_stream()) keep(end_of_step(path, step));
}

void RunLog::write(const LogEntry& e) {
  Json entry;
  entry["step"] = e.step;
  entry["loss"] = e.loss;
  entry["lr"] = e.lr;
  entry["grad_norm"] = e.grad_norm;
  entry["tokens_per_second"] = std::round(e.tokens_per_second);
  if (e.val_loss) entry["val_loss"] = *e.val_loss;
  for (const auto& [name, value] : e.val_metrics) entry["val_" + name] = value;
  LogFile::write(entry.dump());
}

}  // namespace heed::detail

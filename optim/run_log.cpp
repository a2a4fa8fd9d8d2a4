// The log of a run: writing it, and finding where a resumed run goes on in it.
#include <heed/optim/detail/run_log.hpp>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <heed/core/check.hpp>
#include <heed/data/detail/disk.hpp>
#include <nlohmann/json.hpp>

namespace heed::detail {
namespace {

using Json = nlohmann::ordered_json;  // writes what is not finite as null

// What a line is the entry of; step 0 where it is none.
struct Entry {
  Index step = 0;
  double loss = NAN;
};

Entry entry_of(const std::string& line) {
  const Json json = Json::parse(line, nullptr, false);
  Entry entry;
  if (!json.is_object()) return entry;
  if (json.contains("step") && json["step"].is_number_integer()) entry.step = json["step"].get<Index>();
  if (json.contains("loss") && json["loss"].is_number()) entry.loss = json["loss"].get<double>();
  return entry;
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
// before. The first is of any step up to `step` + 1, as a run that was resumed without its log began a new one. The
// line tells the loss of that step, or it is of a run that was begun afresh and killed before it saved.
std::uintmax_t end_of_step(const std::filesystem::path& path, Index step, double loss) {
  std::ifstream file(path, std::ios::binary);
  require(file.good(), "log: ", path.string(), " cannot be read: ", std::strerror(errno));
  std::string line;
  std::uintmax_t end = 0;
  Entry entry;  // of the line before
  for (Index number = 1; entry.step < step; ++number) {
    const bool whole = static_cast<bool>(std::getline(file, line)) && !file.eof();
    if (number == 1 && is_left_of_entry(line, whole, step + 1)) return 0;
    const Index next = entry.step + 1, last = number == 1 ? step + 1 : next;
    require(whole, "log: ", path.string(), " ends before step ", next, " but the checkpoint is of step ", step,
            "; give the log that belongs to it, or another file");
    entry = entry_of(line);
    require(entry.step >= next && entry.step <= last, "log: line ", number, " of ", path.string(),
            " is not the entry of step ", next, number == 1 ? " or of a later one up to " + std::to_string(last) : "",
            "; give the log that belongs to the checkpoint, or another file");
    if (entry.step > step) return 0;
    end += line.size() + 1;
  }
  require(std::isnan(entry.loss) || entry.loss == loss, "log: ", path.string(), " is of another run: the loss of step ",
          step, " is ", entry.loss, " there and ", loss,
          " in the checkpoint; give the log that belongs to it, or another file");
  return end;
}

}  // namespace

RunLog::RunLog(const std::filesystem::path& path, const std::vector<double>& losses) : LogFile(path) {
  if (!losses.empty() && !path.empty() && !is_stream())
    keep(end_of_step(path, static_cast<Index>(losses.size()), losses.back()));
}

void RunLog::write(const RunStep& s) {
  Json entry;
  entry["step"] = s.step;
  entry["loss"] = s.loss;
  entry["lr"] = s.lr;
  entry["grad_norm"] = s.grad_norm;
  entry["tokens_per_second"] = std::round(s.tokens_per_second);
  for (const auto& [name, value] : s.others) entry[name] = value;
  if (s.validation_loss) entry["val_loss"] = *s.validation_loss;
  for (const auto& [name, value] : s.validation_metrics) entry["val_" + name] = value;
  LogFile::write(entry.dump());
}

}  // namespace heed::detail

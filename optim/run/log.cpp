// Writes the log of a run, and finds where a resumed run continues in it.
#include <heed/optim/run/log.hpp>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <heed/core/check.hpp>
#include <nlohmann/json.hpp>

namespace heed::detail {
namespace {

using Json = nlohmann::ordered_json;  // writes numbers that are not finite as null

// The step and loss of a log line; step 0 if the line is not an entry.
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

// Whether this is the first line of a log that begins with the entry of `step`, and was never synced. It is cut where
// the program was killed, or has zeros for bytes that were not on the disk when the power failed.
bool is_left_of_entry(const std::string& line, bool whole, Index step) {
  const std::string begin = "{\"step\":" + std::to_string(step) + ",", text = line.substr(0, line.find('\0'));
  if (whole && text == line) return false;
  const bool is_text = std::all_of(line.begin(), line.end(), [](unsigned char c) { return c == 0 || c >= ' '; });
  return is_text && (text.starts_with(begin) || begin.starts_with(text));
}

// The position in bytes after the line of `step`; 0 if the log begins with a later step. Lines have consecutive steps.
// The first line is of any step up to `step` + 1, because a run that was resumed without its log began a new one.
// Throws Error if the line has another loss: the log is then of a new run that was killed before it saved.
std::uintmax_t end_of_step(const std::filesystem::path& path, Index step, double loss) {
  std::ifstream file(path, std::ios::binary);
  require(file.good(), "log: ", path.string(), " cannot be read: ", std::strerror(errno));
  std::string line;
  std::uintmax_t end = 0;
  Entry entry;  // of the previous line
  for (Index number = 1; entry.step < step; ++number) {
    const bool whole = static_cast<bool>(std::getline(file, line)) && !file.eof();
    if (number == 1 && is_left_of_entry(line, whole, step + 1)) return 0;
    const Index next = entry.step + 1, last = number == 1 ? step + 1 : next;
    require(whole, "log: ", path.string(), " ends before step ", next, " but the checkpoint is at step ", step,
            "; give the log that belongs to the checkpoint, or another file");
    entry = entry_of(line);
    require(entry.step >= next && entry.step <= last, "log: line ", number, " of ", path.string(),
            " is not the entry of step ", next, number == 1 ? " or of a later step up to " + std::to_string(last) : "",
            "; give the log that belongs to the checkpoint, or another file");
    if (entry.step > step) return 0;
    end += line.size() + 1;
  }
  require(std::isnan(entry.loss) || entry.loss == loss, "log: ", path.string(),
          " belongs to another run: the loss of step ", step, " is ", entry.loss, " there but ", loss,
          " in the checkpoint; give the log that belongs to the checkpoint, or another file");
  return end;
}

// The part of a log that belongs to a run with these losses.
struct Part {
  std::uintmax_t bytes = 0;  // of its whole lines
  Index next = 1;            // the first step without a line
  bool is_other = false;     // the file has other content
};

Part part_of_run(const std::filesystem::path& path, const std::vector<double>& losses) {
  Part part;
  std::error_code ignored;
  part.is_other = std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored);
  if (part.is_other) return part;
  std::ifstream file(path, std::ios::binary);
  const auto steps = static_cast<Index>(losses.size());
  for (std::string line; std::getline(file, line);) {
    const bool first = part.bytes == 0;
    if (file.eof()) {  // an incomplete line
      const std::string begin = "{\"step\":";
      part.is_other = first && !line.starts_with(begin) && !begin.starts_with(line);
      return part;
    }
    const Entry entry = entry_of(line);
    const bool follows = first ? entry.step >= 1 && entry.step <= steps : entry.step == part.next;
    if (!follows || entry.step > steps) return part.is_other = true, part;
    const double loss = losses[static_cast<std::size_t>(entry.step - 1)];
    if (!std::isnan(entry.loss) && entry.loss != loss) return part.is_other = true, part;
    part.bytes += line.size() + 1, part.next = entry.step + 1;
  }
  return part;
}

std::string line_of(const RunStep& s) {
  Json entry;
  entry["step"] = s.step;
  entry["loss"] = s.loss;
  entry["lr"] = s.lr;
  entry["grad_norm"] = s.grad_norm;
  if (s.samples_per_second > 0 && s.tokens_per_second == 0)
    entry["samples_per_second"] = std::round(s.samples_per_second);
  else
    entry["tokens_per_second"] = std::round(s.tokens_per_second);
  for (const auto& [name, value] : s.others) entry[name] = value;
  if (s.validation_loss) entry["val_loss"] = *s.validation_loss;
  for (const auto& [name, value] : s.validation_metrics) entry["val_" + name] = value;
  return entry.dump();
}

// The line of an earlier step, whose rate, norm and speed are not known any more.
std::string line_of(const RunHistory& history, Index step) {
  const auto i = static_cast<std::size_t>(step - 1);
  Json entry;
  entry["step"] = step;
  entry["loss"] = history.losses[i];
  for (const auto& [name, losses] : history.other_losses) entry["loss_" + name] = losses[i];
  for (std::size_t e = 0; e < history.validation_losses.size(); ++e) {
    if (history.validation_losses[e].first != step) continue;
    entry["val_loss"] = history.validation_losses[e].second;
    for (const auto& [name, value] : history.validation_metrics[e]) entry["val_" + name] = value;
  }
  return entry.dump();
}

}  // namespace

RunLog::RunLog(const std::filesystem::path& path, const std::vector<double>& losses) : LogFile(path) {
  if (!losses.empty() && !path.empty() && !is_stream())
    keep(end_of_step(path, static_cast<Index>(losses.size()), losses.back()));
}

std::string RunLog::write(const RunStep& s, const RunHistory& history) {
  if (is_stream()) return LogFile::write(line_of(s)), "";
  if (is_open() && !ended_) unwritten_[s.step] = line_of(s);
  return guarded([&] { return repair(history, s.step - 1); });
}

std::string RunLog::sync(const RunHistory& history) {
  if (is_stream()) return LogFile::sync(), "";
  return guarded([&] {
    const std::string warning = repair(history, static_cast<Index>(history.losses.size()));
    if (!ended_) LogFile::sync();
    return warning;
  });
}

template <class F>
std::string RunLog::guarded(const F& work) {
  if (!is_open() || ended_) return "";
  const bool reported = !error_.empty();
  try {
    const std::string warning = work();
    error_.clear();
    return warning;
  } catch (const Error& e) {
    error_ = e.what();
    return reported ? "" : error_ + "; the run continues";
  }
}

// Writes the missing lines. If the file was damaged, these include lines up to `steps` that were written before.
std::string RunLog::repair(const RunHistory& history, Index steps) {
  const std::string what = damage(), name = path().string();
  if (!what.empty()) {
    const Part part = part_of_run(name, history.losses);
    if (part.is_other) {
      ended_ = true;
      return "log: " + name + " " + what + " and is no longer the log of this run; the log ends with step " +
             std::to_string(steps);
    }
    if (what != "was truncated") static_cast<LogFile&>(*this) = LogFile(path());
    keep(part.bytes);
    for (Index step = part.next; step <= steps; ++step) unwritten_.try_emplace(step, line_of(history, step));
  }
  while (!unwritten_.empty()) {
    LogFile::write(unwritten_.begin()->second);
    unwritten_.erase(unwritten_.begin());
  }
  return what.empty()
             ? ""
             : "log: " + name + " " + what + "; the run writes it again, with only the losses of earlier steps";
}

}  // namespace heed::detail

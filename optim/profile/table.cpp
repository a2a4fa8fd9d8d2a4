// The averages of a profile, and its tables.
#include <algorithm>
#include <cctype>
#include <cmath>
#include <heed/core/check.hpp>
#include <heed/core/parallel.hpp>
#include <heed/optim/profile/state.hpp>
#include <ostream>

namespace heed {

using detail::formatted;

double detail::ProfileMachine::bandwidth() {
  if (bandwidth_ == 0) bandwidth_ = peak_bandwidth();
  return bandwidth_;
}

double detail::ProfileMachine::seconds_for(const Flops& flops) {
  double seconds = 0;
  for (std::size_t i = 0; i < flops.size(); ++i) {
    if (flops[i] <= 0) continue;
    if (peak_[i] == 0) peak_[i] = peak_flops(static_cast<DType>(i));
    seconds += flops[i] / peak_[i];
  }
  return seconds;
}

namespace {

using detail::ProfileSum;

ProfileWork work_of(const ProfileSum& sum, double steps, detail::ProfileMachine& machine) {
  ProfileWork w;
  w.calls = static_cast<double>(sum.calls) / steps;
  w.seconds = sum.seconds / steps;
  w.bytes = sum.bytes / steps;
  for (const double f : sum.flops) w.flops += f / steps;
  if (sum.seconds <= 0) return w;
  w.share_of_peak = machine.seconds_for(sum.flops) / sum.seconds;
  if (w.bytes > 0) w.share_of_memory = sum.bytes / machine.bandwidth() / sum.seconds;
  return w;
}

ProfileWork operator+(const ProfileWork& a, const ProfileWork& b) {
  ProfileWork sum{a.calls + b.calls, a.seconds + b.seconds, a.flops + b.flops, a.bytes + b.bytes};
  if (sum.seconds <= 0) return sum;
  const auto mean = [&](double x, double y) { return (x * a.seconds + y * b.seconds) / sum.seconds; };
  sum.share_of_peak = mean(a.share_of_peak, b.share_of_peak);
  sum.share_of_memory = mean(a.share_of_memory, b.share_of_memory);
  return sum;
}

void sort_by_time(std::vector<ProfileRow>& rows) {
  std::stable_sort(rows.begin(), rows.end(), [](const ProfileRow& a, const ProfileRow& b) {
    return a.kind != b.kind ? a.kind < b.kind : a.seconds() > b.seconds();
  });
}

std::vector<ProfileRow> averages(Profile::State& state) {
  detail::ProfileMachine& machine = state.machine;
  const Profile::State::Measured m = state.so_far();
  std::vector<ProfileRow> rows;
  if (m.steps == 0) return rows;
  const auto steps = static_cast<double>(m.steps);
  for (const auto& [key, sum] : m.sums.ops)
    rows.push_back({ProfileRow::op, state.names[key.first], state.names[key.second],
                    work_of(sum.forward, steps, machine), work_of(sum.backward, steps, machine)});
  const auto add = [&](ProfileRow::Kind kind, const std::map<std::uint32_t, ProfileSum>& sums) {
    for (const auto& [name, sum] : sums)
      rows.push_back({kind, state.names[name], {}, work_of(sum, steps, machine), {}});
  };
  add(ProfileRow::part, m.sums.parts);
  double rest = m.seconds / steps;
  for (const ProfileRow& r : rows) rest -= r.seconds();
  rows.push_back({ProfileRow::rest, "everything else", {}, {.seconds = std::max(0.0, rest)}, {}});
  add(ProfileRow::span, m.sums.spans);
  add(ProfileRow::concurrent, m.sums.concurrent);
  sort_by_time(rows);
  return rows;
}

// ---- Tables ----

// blocks.*.mlp.up for blocks.2.mlp.up
std::string without_numbers(const std::string& module) {
  std::string result;
  for (std::size_t begin = 0; begin <= module.size();) {
    const std::size_t end = std::min(module.find('.', begin), module.size());
    const std::string part = module.substr(begin, end - begin);
    const bool number =
        !part.empty() && std::all_of(part.begin(), part.end(), [](unsigned char c) { return std::isdigit(c); });
    result += (begin > 0 ? "." : "") + (number ? "*" : part);
    begin = end + 1;
  }
  return result;
}

// Joins rows with the same name and module. If not by_module, rows of all modules are joined.
std::vector<ProfileRow> joined(const std::vector<ProfileRow>& rows, bool by_module) {
  std::vector<ProfileRow> result;
  for (const ProfileRow& row : rows) {
    const std::string module = by_module ? without_numbers(row.module) : "";
    const auto same = std::find_if(result.begin(), result.end(),
                                   [&](const ProfileRow& r) { return r.name == row.name && r.module == module; });
    if (same == result.end()) {
      result.push_back(row);
      result.back().module = module;
    } else {
      same->forward = same->forward + row.forward;
      same->backward = same->backward + row.backward;
    }
  }
  sort_by_time(result);
  return result;
}

// The limit of the machine that the work is closer to, and its share. Shares of memory above 5 are not shown, because
// no cache is that fast: such a derivative passes its gradient on without reading it.
std::string reached(const ProfileWork& w) {
  const bool peak = w.share_of_peak >= w.share_of_memory;
  const double share = peak ? w.share_of_peak : w.share_of_memory;
  if (w.seconds <= 0 || share <= 0 || (!peak && share > 5)) return "";
  return formatted("%.0f%% %s", 100 * share, peak ? "peak" : "mem ");
}

std::string call_count(double n) { return n == 0 ? "" : formatted(n == std::floor(n) ? "%.0f" : "%.1f", n); }
std::string milliseconds(double seconds) { return seconds <= 0 ? "" : formatted("%.3f", 1e3 * seconds); }
std::string scaled(double n, double unit) {
  return n <= 0 ? "" : formatted(n / unit < 9.995 ? "%.2f" : "%.0f", n / unit);
}

class Table {
 public:
  Table(std::ostream& out, double step, std::size_t name_width, std::size_t module_width)
      : out_(out), step_(step), name_(name_width), module_(module_width) {}

  void title(const std::string& what) const {
    const std::string left = padded(what, name_) + padded(module_ > 0 ? "module" : "", module_);
    out_ << '\n'
         << std::string(left.size(), ' ') << formatted("%6s %19s %19s\n", "", "forward", "backward") << left
         << formatted("%6s %9s %9s %9s %9s %7s %6s %9s %7s\n", "calls", "ms", "reaches", "ms", "reaches", "GFLOP", "MB",
                      "ms", "share");
  }
  void row(const ProfileRow& r) const {
    const ProfileWork both = r.forward + r.backward;
    out_ << padded(r.name, name_)
         << padded(r.module.empty() && module_ > 0 && r.kind == ProfileRow::op ? "(the model)" : r.module, module_)
         << formatted("%6s %9s %9s %9s %9s %7s %6s %9s %6.1f%%\n",
                      call_count(std::max(r.forward.calls, r.backward.calls)).c_str(),
                      milliseconds(r.forward.seconds).c_str(), reached(r.forward).c_str(),
                      milliseconds(r.backward.seconds).c_str(), reached(r.backward).c_str(),
                      scaled(both.flops, 1e9).c_str(), scaled(both.bytes, 1e6).c_str(),
                      milliseconds(r.seconds()).c_str(), step_ > 0 ? 100 * r.seconds() / step_ : 0);
  }
  // Prints a row for a part, which is not an op.
  void part(const std::string& name, const std::string& calls, double seconds, double bytes = 0) const {
    out_ << padded(name, name_ + module_)
         << formatted("%6s %9s %9s %9s %9s %7s %6s %9s %6.1f%%\n", calls.c_str(), "", "", "", "", "",
                      scaled(bytes, 1e6).c_str(), milliseconds(seconds).c_str(), step_ > 0 ? 100 * seconds / step_ : 0);
  }
  void rows(const std::vector<ProfileRow>& rows, Index max_rows) const {
    ProfileRow others, all{ProfileRow::part, "all ops", {}, {}, {}};
    Index shown = 0;
    const auto number = static_cast<Index>(rows.size());
    for (const ProfileRow& r : rows) {
      all.forward = all.forward + r.forward, all.backward = all.backward + r.backward;
      if (number <= max_rows || shown + 1 < max_rows) {
        row(r), ++shown;
      } else {
        others.forward = others.forward + r.forward, others.backward = others.backward + r.backward;
      }
    }
    others.kind = ProfileRow::part;
    others.name = std::to_string(number - shown) + " others";
    if (shown < number) row(others);
    row(all);
  }

 private:
  std::ostream& out_;
  double step_;
  std::size_t name_, module_;

  static std::string padded(std::string text, std::size_t width) {
    if (width == 0) return "";
    if (text.size() + 2 > width) text = text.substr(0, width - 3) + "~";
    return text + std::string(width - text.size(), ' ');
  }
};

std::size_t width_of(const std::vector<ProfileRow>& rows, std::string ProfileRow::*column, std::size_t min_width) {
  std::size_t width = min_width;
  for (const ProfileRow& r : rows) width = std::max(width, (r.*column).size() + 2);
  return std::min<std::size_t>(width, 48);
}

// Prints the first line: time per step, rate and share of the peak, and the machine.
void print_summary(std::ostream& out, Index measured, double step, const ProfileWork& work, double bandwidth) {
  const Index steps = std::max<Index>(1, measured);
  out << "profile of " << std::to_string(steps) << (steps == 1 ? " step" : " steps")
      << formatted(": %.3f ms per step", 1e3 * step);
  if (work.flops > 0)
    out << formatted(", %.0f GFLOP/s, which is %.0f%% of the peak", work.flops / step / 1e9, 100 * work.share_of_peak);
  out << formatted("; copies reach %.0f GB/s; %d thread%s, %s\n", bandwidth / 1e9, threads(), threads() == 1 ? "" : "s",
                   arch());
}

}  // namespace

std::vector<ProfileRow> Profile::key_averages() const { return averages(*state_); }

void Profile::print(std::ostream& out, Index max_rows) const {
  const std::vector<ProfileRow> all = averages(*state_);
  if (all.empty()) {
    out << "profile: no step was measured" << (done() ? "" : ": the warm-up is not over") << '\n';
    return;
  }
  std::vector<ProfileRow> ops, others, spans, concurrent;
  std::vector<ProfileRow>* const lists[] = {&ops, &others, &others, &spans, &concurrent};  // by ProfileRow::Kind
  ProfileWork work;
  double step = 0;
  for (const ProfileRow& r : all) {
    lists[r.kind]->push_back(r);
    if (r.kind == ProfileRow::span || r.kind == ProfileRow::concurrent) continue;
    work = work + r.forward + r.backward;
    step += r.seconds();
  }
  print_summary(out, state_->measured.steps, step, work, state_->machine.bandwidth());

  const std::vector<ProfileRow> by_op = joined(ops, false), by_module = joined(ops, true);
  std::size_t name_width = width_of(by_op, &ProfileRow::name, 18);
  for (const auto* rows : {&others, &spans, &concurrent})
    name_width = std::max(name_width, width_of(*rows, &ProfileRow::name, 18));
  const Table of_ops(out, step, name_width, 0),
      of_modules(out, step, name_width, width_of(by_module, &ProfileRow::module, 14));
  of_ops.title("op");
  of_ops.rows(by_op, max_rows);
  for (const ProfileRow& r : others) of_ops.part(r.name, call_count(r.forward.calls), r.seconds());
  of_ops.part("step", "", step);
  of_modules.title("op");
  of_modules.rows(by_module, max_rows);
  const auto list = [&](const char* title, const std::vector<ProfileRow>& rows) {
    if (!rows.empty()) out << title;
    for (const ProfileRow& r : rows) of_ops.part(r.name, call_count(r.forward.calls), r.seconds(), r.forward.bytes);
  };
  list("\nspans, including everything inside them\n", spans);
  list("\ntransfers between ranks, concurrent with all this\n", concurrent);
}

}  // namespace heed

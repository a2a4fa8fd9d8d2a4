// Writes a profile as a trace for chrome://tracing and Perfetto: "complete" events of the Trace Event Format, with
// begin and duration in microseconds. Viewers draw an event below the event that contains it.
#include <algorithm>
#include <cmath>
#include <heed/core/check.hpp>
#include <heed/core/parallel.hpp>
#include <heed/data/detail/disk.hpp>
#include <heed/optim/profile/state.hpp>
#include <nlohmann/json.hpp>

namespace heed {
namespace {

using detail::ProfileEvent;

bool is_op(const ProfileEvent& e) { return e.kind == ProfileEvent::forward || e.kind == ProfileEvent::backward; }

class Trace {
 public:
  Trace(const detail::Names& names, double begin) : names_(names), begin_(begin) {
    text_ = R"({"displayTimeUnit": "ms", "traceEvents": [)"
            "\n"
            R"({"name": "process_name", "ph": "M", "pid": 1, "tid": 1, "args": {"name": "heed, )" +
            std::string(arch()) + ", " + std::to_string(threads()) + R"( threads"}})";
  }

  // Adds the work of other threads, each name on its own line.
  void add_concurrent(std::span<const ProfileEvent> events) {
    std::vector<std::uint32_t> lines;  // names
    for (const ProfileEvent& e : events) {
      auto line = std::find(lines.begin(), lines.end(), e.name);
      if (line == lines.end()) {
        line = lines.insert(lines.end(), e.name);
        text_ +=
            ",\n{\"name\": \"thread_name\", \"ph\": \"M\", \"pid\": 1, \"tid\": " + std::to_string(lines.size() + 1) +
            ", \"args\": {\"name\": " + quoted(names_[e.name]) + "}}";
      }
      write(names_[e.name], "transfer", e.begin, e.end, R"("MB": )" + number(e.bytes / 1e6),
            static_cast<int>(line - lines.begin()) + 2);
    }
  }

  // Adds events in order. An event precedes the events inside it.
  void add(std::span<const ProfileEvent> events) {
    for (std::size_t i = 0; i < events.size();) {
      if (!is_op(events[i])) {
        const std::size_t inside = inside_of(events, i);
        write(title(events[i]), "part", events[i].begin, events[i].end);
        add(events.subspan(i + 1, inside - i - 1));
        i = inside;
        continue;
      }
      // Consecutive ops of one direction, with the events inside their derivatives.
      std::size_t end = i;
      while (end < events.size() && events[end].kind == events[i].kind) end = inside_of(events, end);
      const auto run = events.subspan(i, end - i);
      if (events[i].kind == ProfileEvent::forward) write("forward", "pass", run.front().begin, last_of(run).end);
      add_modules(run, 0);
      i = end;
    }
  }

  std::string finish(Index steps, Index left_out) {
    text_ += "\n], \"otherData\": {\"steps\": " + std::to_string(steps) +
             ", \"steps_left_out\": " + std::to_string(left_out) + "}}\n";
    return std::move(text_);
  }

 private:
  const detail::Names& names_;
  double begin_;
  std::string text_;
  Index step_ = 0;

  static std::size_t inside_of(std::span<const ProfileEvent> events, std::size_t i) {
    std::size_t next = i + 1;
    while (next < events.size() && events[next].begin < events[i].end) ++next;
    return next;
  }
  static const ProfileEvent& last_of(std::span<const ProfileEvent> run) {
    std::size_t i = 0;
    for (std::size_t next = 0; next < run.size(); next = inside_of(run, next)) i = next;
    return run[i];
  }
  std::string title(const ProfileEvent& e) {
    const std::string& name = names_[e.name];
    return e.kind == ProfileEvent::step ? name + " " + std::to_string(++step_) : name;
  }

  // The first `depth` names of an op's module: "blocks.0" of blocks.0.mlp.up for 2. The whole module if it has fewer.
  std::string_view prefix(const ProfileEvent& e, int depth) const {
    const std::string_view module = names_[e.module];
    std::size_t at = 0;
    for (int i = 0; i < depth && at < module.size(); ++i) at = std::min(module.find('.', at + (i > 0)), module.size());
    return module.substr(0, at);
  }

  // Adds ops whose modules have the first `depth` names in common, as spans of the modules below.
  void add_modules(std::span<const ProfileEvent> run, int depth) {
    for (std::size_t i = 0; i < run.size();) {
      const std::string_view module = prefix(run[i], depth + 1);
      std::size_t end = inside_of(run, i);
      if (module.size() == names_[run[i].module].size() && module == prefix(run[i], depth)) {
        write_op(run[i]);
        add(run.subspan(i + 1, end - i - 1));
      } else {
        while (end < run.size() && prefix(run[end], depth + 1) == module) end = inside_of(run, end);
        const auto part = run.subspan(i, end - i);
        write(std::string(module), "module", part.front().begin, last_of(part).end);
        add_modules(part, depth + 1);
      }
      i = end;
    }
  }

  void write_op(const ProfileEvent& e) {
    double flops = 0;
    for (const double f : e.flops) flops += f;
    const bool back = e.kind == ProfileEvent::backward;
    write(names_[e.name] + (back ? " backward" : ""), back ? "backward" : "forward", e.begin, e.end,
          R"("module": )" + quoted(names_[e.module]) + ", \"MB\": " + number(e.bytes / 1e6) + ", \"GFLOP\": " +
              number(flops / 1e9) + ", \"GFLOP/s\": " + number(e.self > 0 ? flops / e.self / 1e9 : 0));
  }
  void write(const std::string& name, const char* category, double begin, double end, const std::string& args = "",
             int line = 1) {
    text_ += ",\n{\"name\": " + quoted(name) + ", \"cat\": \"" + category +
             "\", \"ph\": \"X\", \"pid\": 1, \"tid\": " + std::to_string(line) +
             ", \"ts\": " + microseconds(nanoseconds(begin)) +
             ", \"dur\": " + microseconds(nanoseconds(end) - nanoseconds(begin)) + ", \"args\": {" + args + "}}";
  }

  // Whole nanoseconds, so that an event that ends with its parent has exactly the same end.
  long long nanoseconds(double time) const { return std::llround(1e9 * (time - begin_)); }
  static std::string microseconds(long long ns) { return detail::formatted("%lld.%03lld", ns / 1000, ns % 1000); }

  static std::string quoted(const std::string& text) {
    return nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  }
  static std::string number(double x) { return detail::formatted("%.4f", x); }
};

}  // namespace

void Profile::export_chrome_trace(const std::filesystem::path& file) const {
  State::Measured m = state_->so_far();
  std::sort(m.trace.begin(), m.trace.end(), [](const ProfileEvent& a, const ProfileEvent& b) {
    if (a.begin != b.begin) return a.begin < b.begin;
    return a.end != b.end ? a.end > b.end : a.kind > b.kind;  // outer events first
  });
  Trace trace(state_->names, m.trace.empty() ? 0 : m.trace.front().begin);
  const auto concurrent = std::stable_partition(
      m.trace.begin(), m.trace.end(), [](const ProfileEvent& e) { return e.kind != ProfileEvent::concurrent; });
  trace.add({m.trace.begin(), concurrent});
  trace.add_concurrent({concurrent, m.trace.end()});
  const std::string text = trace.finish(m.steps, state_->left_out_of_trace);
  detail::replace_file("export_chrome_trace", file, text);
}

}  // namespace heed

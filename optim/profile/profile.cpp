// Measures steps: the events of ops and scopes, their modules, and their sums.
#include <algorithm>
#include <atomic>
#include <heed/core/check.hpp>
#include <heed/core/clock.hpp>
#include <heed/optim/profile/state.hpp>

namespace heed {
namespace detail {

std::uint32_t Names::operator()(std::string_view text) {
  const auto found = numbers_.find(text);
  if (found != numbers_.end()) return found->second;
  const auto number = static_cast<std::uint32_t>(texts_.size());
  texts_.push_back(&numbers_.emplace(text, number).first->first);
  return number;
}

void ProfileSum::add(const ProfileEvent& e, double of_seconds) {
  ++calls;
  seconds += of_seconds;
  bytes += e.bytes;
  for (std::size_t i = 0; i < flops.size(); ++i) flops[i] += e.flops[i];
}

void ProfileSums::add(std::span<const ProfileEvent> events) {
  for (const ProfileEvent& e : events) {
    const double whole = e.end - e.begin;
    if (e.inside != 0 && e.kind != ProfileEvent::concurrent) continue;  // its time counts for the part
    switch (e.kind) {
      case ProfileEvent::forward: ops[{e.name, e.module}].forward.add(e, e.self); break;
      case ProfileEvent::backward: ops[{e.name, e.module}].backward.add(e, e.self); break;
      case ProfileEvent::part: parts[e.name].add(e, whole); break;
      case ProfileEvent::span: spans[e.name].add(e, whole); break;
      case ProfileEvent::concurrent: concurrent[e.name].add(e, whole); break;
      case ProfileEvent::pass:
      case ProfileEvent::step: break;
    }
  }
}

}  // namespace detail

namespace {

// Numbers of frames and steps, unique over all profiles.
std::uint64_t next_number() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

}  // namespace

// ---- Steps ----

Profile::State::State(const ProfileOptions& o) : options(o) {
  require(o.warmup >= 0 && o.active >= 0 && o.trace_events >= 0, "Profile: warmup is ", o.warmup, ", active ", o.active,
          " and trace_events ", o.trace_events, "; they must be 0 or more");
  active_ = o.warmup == 0;
  begin_step();
}

void Profile::State::begin_step() {
  events_.clear();
  unknown_.clear();
  last_module_ = kNone;
  generation_ = next_number() << 32;
  flops_ = {};
  begin_ = tick();
  for (Frame& f : frames_) f.event.begin = begin_, f.inner = 0;
}

// The events of the current step, as if the step and all open frames ended now.
std::vector<Profile::State::Event> Profile::State::events_up_to(double now) {
  std::vector<Event> events = events_;
  for (const std::size_t i : unknown_) events[i].module = common_module(last_module_, kNone);
  for (const Frame& f : frames_) events.push_back(closed(f, now));
  events.push_back({.kind = Event::step, .name = names("step"), .begin = begin_, .end = now});
  return events;
}

Profile::State::Measured Profile::State::so_far() {
  if (measured.steps > 0 || !active_) return measured;
  const double now = detail::seconds_now();
  Measured m{.steps = 1, .seconds = now - begin_, .trace = events_up_to(now)};
  m.sums.add(m.trace);
  return m;
}

void Profile::State::step() {
  require(derivative_ == nullptr, "Profile: step() is called inside a backward pass; call it after the step");
  if (active_) {
    const double now = detail::seconds_now();
    const std::vector<Event> events = events_up_to(now);
    measured.sums.add(events);
    measured.seconds += now - begin_;
    ++measured.steps;
    std::vector<Event>& trace = measured.trace;
    if (static_cast<Index>(trace.size() + events.size()) <= options.trace_events)
      trace.insert(trace.end(), events.begin(), events.end());
    else
      ++left_out_of_trace;
  }
  ++made;
  active_ = made >= options.warmup && (options.active == 0 || measured.steps < options.active);
  begin_step();
}

void Profile::State::start() {
  require(derivative_ == nullptr, "Profile: start() is called inside a backward pass; call it between steps");
  begin_step();
}

// ---- Events ----

double Profile::State::tick() {
  waited_ = 0;
  return last_ = detail::seconds_now();
}

detail::Flops Profile::State::take_flops() {
  const detail::Flops taken = {flops_[0], flops_[1], flops_[2]};
  flops_ = {};
  return taken;
}

void Profile::State::keep_flops() {
  const detail::Flops taken = take_flops();
  if (derivative_ == nullptr) return;
  for (std::size_t i = 0; i < taken.size(); ++i) derivative_->event.flops[i] += taken[i];
}

// Call when an op or a part has ended. Its time does not count for the derivative around it.
void Profile::State::count_inside(const Event& e, double of_seconds) {
  if (e.inside == 0 && derivative_ != nullptr) derivative_->inner += of_seconds;
}

std::uint64_t Profile::State::op(const char* name, std::string_view module, double bytes) {
  // Ops inside a derivative are not recorded, unless the derivative has its own tape, as in recompute().
  if (!active_ || (derivative_ != nullptr && detail::mode().suspended)) return 0;
  Event e{.kind = Event::forward, .name = names(name), .inside = inside_, .begin = last_, .bytes = bytes};
  e.flops = take_flops();
  if (module.empty()) {
    unknown_.push_back(events_.size());
  } else {
    e.module = names(module);
    set_modules(e.module);
  }
  const double waited = waited_;
  e.end = tick();
  e.self = e.end - e.begin - waited;
  count_inside(e, e.self);
  events_.push_back(e);
  return generation_ | events_.size();
}

std::uint64_t Profile::State::push(Event e) {
  keep_flops();
  e.inside = inside_;
  e.begin = active_ ? tick() : 0;
  frames_.push_back({next_number(), e});
  find_innermost();
  return frames_.back().number;
}

std::uint64_t Profile::State::begin(const char* name, Scope kind) {
  if (kind != Scope::span) set_modules(kNone);
  return push({.kind = kind == Scope::part   ? Event::part
                       : kind == Scope::pass ? Event::pass
                                             : Event::span,
               .name = names(name)});
}

std::uint64_t Profile::State::begin_backward(std::uint64_t op, const char* name, std::string_view module,
                                             double bytes) {
  Event e{.kind = Event::backward, .bytes = bytes};
  if (op > generation_ && op - generation_ <= events_.size()) {
    const Event& of = events_[static_cast<std::size_t>(op - generation_ - 1)];
    e.name = of.name, e.module = of.module;
  } else if (active_) {
    e.name = names(name), e.module = names(module);
  }
  return push(e);
}

Profile::State::Event Profile::State::closed(const Frame& frame, double now) {
  Event e = frame.event;
  e.end = now;
  e.self = e.end - e.begin - frame.inner;
  return e;
}

// Also ends the frames that began later and have not ended, as after an exception.
void Profile::State::end(std::uint64_t begun) noexcept {
  const auto of = std::find_if(frames_.begin(), frames_.end(), [&](const Frame& f) { return f.number == begun; });
  if (of == frames_.end()) return;
  const auto first = static_cast<std::size_t>(of - frames_.begin());
  keep_flops();
  while (frames_.size() > first) {
    if (active_) tick();
    const Event e = closed(frames_.back(), last_);
    frames_.pop_back();
    find_innermost();
    if (!active_) continue;
    if (e.kind == Event::part || e.kind == Event::pass) set_modules(kNone);
    if (e.kind == Event::part || e.kind == Event::backward) count_inside(e, e.end - e.begin);
    events_.push_back(e);
  }
}

void Profile::State::find_innermost() {
  derivative_ = nullptr, inside_ = 0;
  for (Frame& f : frames_) {
    if (f.event.kind == Event::backward) derivative_ = &f;
    if (f.event.kind == Event::part && inside_ == 0) inside_ = f.event.name;
  }
}

void Profile::State::leave_out() {
  if (!active_) return;
  set_modules(kNone);
  keep_flops();
  tick();
}

void Profile::State::waited(const char* name, double begin, double end) {
  if (!active_) return;
  events_.push_back({.kind = Event::part, .name = names(name), .inside = inside_, .begin = begin, .end = end});
  count_inside(events_.back(), end - begin);
  waited_ += end - begin;
}

void Profile::State::concurrent(const char* name, double begin, double end, double bytes) {
  if (!active_) return;
  events_.push_back({.kind = Event::concurrent, .name = names(name), .begin = begin, .end = end, .bytes = bytes});
}

// ---- Modules ----

// blocks.0.attention for blocks.0.attention.qkv and blocks.0.attention.proj; empty if they have no common module.
std::uint32_t Profile::State::common_module(std::uint32_t a, std::uint32_t b) {
  if (a == kNone || b == kNone) return 0;
  const std::string_view x = names[a], y = names[b];
  std::size_t shared = 0;
  const auto ends = [](std::string_view path, std::size_t at) { return at == path.size() || path[at] == '.'; };
  for (std::size_t i = 0;; ++i) {
    if (ends(x, i) && ends(y, i)) shared = i;
    if (i == x.size() || i == y.size() || x[i] != y[i]) return names(x.substr(0, shared));
  }
}

// Call when a parameter of module `next` is read, or with kNone if no other parameter follows.
void Profile::State::set_modules(std::uint32_t next) {
  if (!unknown_.empty()) {
    const std::uint32_t module = common_module(last_module_, next);
    for (const std::size_t i : unknown_) events_[i].module = module;
    unknown_.clear();
  }
  last_module_ = next;
}

// ---- Public functions ----

Profile::Profile(ProfileOptions options)
    : state_([&] {
        require(detail::mode().profiler == nullptr,
                "Profile: this thread has a profile already; it must end before another begins");
        return std::make_unique<State>(options);
      }()),
      scope_([](detail::Mode& m, void* state) { m.profiler = static_cast<State*>(state); }, state_.get()) {}

Profile::~Profile() = default;

void Profile::step() {
  require(scope_.is_of_this_thread(),
          "Profile: step() is called on another thread; call it on the thread that created the profile");
  state_->step();
}

void Profile::start() {
  require(scope_.is_of_this_thread(),
          "Profile: start() is called on another thread; call it on the thread that created the profile");
  state_->start();
}

bool Profile::done() const { return state_->options.active > 0 && state_->measured.steps >= state_->options.active; }

Index Profile::steps() const { return state_->measured.steps; }

double Profile::seconds() const {
  const State::Measured m = state_->so_far();
  return m.steps > 0 ? m.seconds / static_cast<double>(m.steps) : 0;
}

RecordFunction::RecordFunction(const std::string& name) : profiler_(detail::mode().profiler) {
  if (profiler_ != nullptr) begun_ = profiler_->begin(name.c_str(), detail::Profiler::Scope::span);
}

RecordFunction::~RecordFunction() {
  if (profiler_ != nullptr && profiler_ == detail::mode().profiler) profiler_->end(begun_);
}

}  // namespace heed

// The state of a Profile: it records events, and its tables and traces read their sums. Private to optim/profile.
#pragma once
#include <array>
#include <functional>
#include <heed/core/profiler.hpp>
#include <heed/optim/profile/profile.hpp>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace heed {

namespace detail {

// Texts and their numbers. Number 0 is the empty text.
class Names {
 public:
  std::uint32_t operator()(std::string_view text);
  const std::string& operator[](std::uint32_t number) const { return *texts_[number]; }
  Names() { (*this)(""); }

 private:
  std::map<std::string, std::uint32_t, std::less<>> numbers_;
  std::vector<const std::string*> texts_;  // the keys of numbers_
};

using Flops = std::array<double, 3>;  // by DType: float32, float64, bfloat16

// An interval from `begin` to `end`, in seconds of seconds_now().
struct ProfileEvent {
  enum Kind : std::uint8_t { forward, backward, part, pass, span, step, concurrent };
  Kind kind = forward;
  std::uint32_t name = 0, module = 0;
  std::uint32_t inside = 0;  // name of the outermost part around the event; 0: none
  double begin = 0, end = 0;
  double self = 0;  // of an op: seconds without the ops that run inside its derivative, as in recompute()
  double bytes = 0;
  Flops flops = {};
};

// Sums over events.
struct ProfileSum {
  Index calls = 0;
  double seconds = 0, bytes = 0;
  Flops flops = {};
  void add(const ProfileEvent& e, double of_seconds);
};

// The events of some steps, summed by name and module.
struct ProfileSums {
  struct Directions {
    ProfileSum forward, backward;
  };
  std::map<std::pair<std::uint32_t, std::uint32_t>, Directions> ops;
  std::map<std::uint32_t, ProfileSum> parts, spans, concurrent;
  void add(std::span<const ProfileEvent> events);
};

// Peak performance of the machine. Each number is measured at its first use.
class ProfileMachine {
 public:
  double bandwidth();
  double seconds_for(const Flops& flops);  // at the peak

 private:
  Flops peak_ = {};
  double bandwidth_ = 0;
};

}  // namespace detail

// Records events of the current step, and sums the events of completed steps.
struct Profile::State final : detail::Profiler {
  using Event = detail::ProfileEvent;

  explicit State(const ProfileOptions& o);

  // Sums over some steps, and their events.
  struct Measured {
    Index steps = 0;
    double seconds = 0;
    detail::ProfileSums sums = {};
    std::vector<Event> trace = {};
  };

  const ProfileOptions options;
  detail::Names names;
  Measured measured;            // completed steps without the warm-up
  Index made = 0;               // completed steps with the warm-up
  Index left_out_of_trace = 0;  // steps
  detail::ProfileMachine machine;

  void step();
  void start();
  Measured so_far();  // `measured`, or if no step is completed, the current step until now

  std::uint64_t op(const char* name, std::string_view module, double bytes) override;
  std::uint64_t begin(const char* name, Scope kind) override;
  std::uint64_t begin_backward(std::uint64_t op, const char* name, std::string_view module, double bytes) override;
  void end(std::uint64_t begun) noexcept override;
  void leave_out() override;
  void waited(const char* name, double begin, double end) override;
  void concurrent(const char* name, double begin, double end, double bytes) override;

 private:
  // A scope or a derivative that has begun and not ended.
  struct Frame {
    std::uint64_t number;
    Event event;
    double inner = 0;  // seconds of the ops and parts inside it
  };

  bool active_ = false;
  double begin_ = 0, last_ = 0;       // begin of the current step; time of the last event
  double waited_ = 0;                 // seconds since last_ that do not count for the next op
  std::uint64_t generation_ = 0;      // upper bits of the numbers from op(); those of other steps are unknown
  std::vector<Event> events_;         // of the current step
  std::vector<std::size_t> unknown_;  // indices of ops whose module depends on the next parameter that is read
  std::uint32_t last_module_ = kNone;
  std::vector<Frame> frames_;
  Frame* derivative_ = nullptr;  // the innermost derivative among the frames
  std::uint32_t inside_ = 0;     // name of the outermost part among the frames

  static constexpr std::uint32_t kNone = 0xffffffffu;

  void begin_step();
  double tick();  // returns the time, which begins the next event
  detail::Flops take_flops();
  void keep_flops();  // adds the flops since the last event to the innermost derivative
  void count_inside(const Event& e, double of_seconds);
  std::uint64_t push(Event e);
  static Event closed(const Frame& frame, double now);
  std::vector<Event> events_up_to(double now);
  void find_innermost();                 // sets derivative_ and inside_; call when frames_ has changed
  void set_modules(std::uint32_t next);  // sets the modules of unknown_ when a parameter of module `next` is read
  std::uint32_t common_module(std::uint32_t a, std::uint32_t b);
};

}  // namespace heed

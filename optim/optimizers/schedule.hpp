// Learning rates as functions of the step: named schedules and your own.
//
// Your own schedule is any type with the first of these members, such as a lambda. A schedule with a state has all
// four:
//
//   double operator()(Index step) const;                    // the rate of step 0, 1, ...
//   void observe(double validation_loss);                   // called after each evaluation
//   std::vector<double> state() const;                      // numbers gathered by observe(), always equally many
//   void load_state(const std::vector<double>& state);
//
// Example:
//
//   const Schedule cosine("cosine", {.lr = 1e-3, .min_lr = 1e-4, .warmup = 100, .steps = 2000});
//   const Schedule decay([](Index step) { return 1e-3 / (1.0 + static_cast<double>(step)); });
//   std::cout << cosine(50) << ' ' << decay(50) << '\n';
#pragma once
#include <concepts>
#include <heed/optim/optimizers/parameter_group.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace heed {

// Options of the named schedules.
struct ScheduleOptions {
  double lr = 1e-3;   // the highest rate
  double min_lr = 0;  // min rate after the warm-up; the last rate of cosine and linear
  Index warmup = 0;   // steps of linear increase from 0 to lr: step t has lr * t / warmup
  Index steps = 0;    // steps of the whole training, for cosine, linear and one-cycle

  Index every = 1000;  // step: steps between reductions of the rate, after the warm-up
  double gamma = 0.1;  // step, plateau: the factor of a reduction

  double div_factor = 25;         // one-cycle: the first rate is lr / div_factor
  double final_div_factor = 1e4;  // one-cycle: the last rate is the first rate / final_div_factor

  Index patience = 10;  // plateau: evaluations without improvement before the next one reduces the rate
  // plateau: a loss below best * (1 - threshold) is an improvement, as in PyTorch's min mode with a relative threshold.
  // If `best` is negative, this limit is above `best`, so a slightly worse loss is an improvement, too.
  double threshold = 1e-4;
  Index cooldown = 0;  // plateau: evaluations after a reduction that are not counted
  double eps = 1e-8;   // plateau: reductions by at most this much are skipped
};

// With t the step from 0, W the warm-up and p = (t - W) / (steps - W), clamped to [0, 1]; for t < W see `warmup`:
//   constant       lr
//   linear         min_lr + (lr - min_lr) (1 - p)
//   cosine         min_lr + (lr - min_lr) (1 + cos(pi p)) / 2             Loshchilov and Hutter, "SGDR", 2017
//   inverse-sqrt   lr sqrt(W / t)                                          Vaswani et al., "Attention", 2017
//   step           lr gamma^floor((t - W) / every)                         torch.optim.lr_scheduler.StepLR
//   one-cycle      rises by a cosine over W steps (0: 30 % of them), then falls by a cosine      OneCycleLR
//   plateau        lr gamma^n after n reductions, by the losses given to observe()                ReduceLROnPlateau
// All except plateau are pure functions of the step.

// A type whose values can be called with a step and return its learning rate.
template <class T>
concept ScheduleLike = requires(const T& t, Index step) {
  { t(step) } -> std::convertible_to<double>;
};

namespace detail {
class NamedSchedule;
}

// Any schedule, by value: a copy has its own state.
class Schedule {
 public:
  // Throws Error for an unknown name and for options out of range.
  Schedule(std::string_view name, const ScheduleOptions& options);
  static const std::vector<std::string>& names();  // the names that the constructor accepts
  // Your own schedule.
  template <ScheduleLike T>
  requires(!std::same_as<T, Schedule>) Schedule(T own)
      : name_("own"), self_(std::make_unique<Model<T>>(std::move(own))) {}

  Schedule(const Schedule& other) : name_(other.name_), self_(other.self_->copy()) {}
  Schedule(Schedule&&) noexcept = default;
  Schedule& operator=(Schedule other) noexcept {
    name_.swap(other.name_), self_.swap(other.self_);
    return *this;
  }

  double operator()(Index step) const;  // the rate of step 0, 1, ...; throws Error below 0

  // Call with the loss after each evaluation. Plateau is the only named schedule that uses the loss. NaN is no
  // improvement.
  void observe(double validation_loss) { self_->observe(validation_loss); }

  const std::string& name() const { return name_; }  // "own" for your own schedule

  // The state for checkpoints, float64. A named schedule has "course": its options, and how resume() changed them. The
  // numbers gathered by observe() are "plateau" or "own". Empty for your own schedule without state().
  std::vector<NamedTensor> state() const;
  void load_state(const std::vector<NamedTensor>& state);  // throws Error for the state of another kind of schedule

  // Continues after `step` steps from the state of a schedule whose options may differ. `last` is the rate of the last
  // step. Returns whether the schedule differs. With the same options, does what load_state() does, to the same bits.
  // Otherwise the rate jumps only if `lr` changed:
  //   another number of steps     the rest of the schedule is stretched or compressed to the steps that remain; a
  //                               schedule that has ended keeps its rate
  //   another lr                  the rate continues at the new lr, and the part after the warm-up runs from there
  //   other options, or a state   the part after the warm-up runs from `last`
  //   of another schedule
  // During the warm-up, the new options take effect as they are. For your own schedule, only load_state() is called.
  bool resume(const std::vector<NamedTensor>& state, Index step, double last);

 private:
  struct Concept {
    virtual ~Concept() = default;
    virtual std::unique_ptr<Concept> copy() const = 0;
    virtual double lr(Index step) const = 0;
    virtual void observe(double validation_loss) = 0;
    virtual std::vector<double> state() const = 0;
    virtual void load_state(const std::vector<double>& state) = 0;
    virtual detail::NamedSchedule* named() = 0;  // null for your own schedule
  };
  template <class T>
  struct Model final : Concept {
    T schedule;
    explicit Model(T s) : schedule(std::move(s)) {}
    std::unique_ptr<Concept> copy() const override { return std::make_unique<Model>(schedule); }
    double lr(Index step) const override { return schedule(step); }
    void observe(double validation_loss) override {
      if constexpr (requires { schedule.observe(validation_loss); }) schedule.observe(validation_loss);
    }
    std::vector<double> state() const override {
      if constexpr (requires { schedule.state(); }) {
        return schedule.state();
      } else {
        static_assert(
            !requires { schedule.observe(0.0); }, "a schedule with observe() must have state() and load_state()");
        return {};
      }
    }
    void load_state(const std::vector<double>& state) override {
      if constexpr (requires { schedule.state(); }) schedule.load_state(state);
    }
    detail::NamedSchedule* named() override {
      if constexpr (std::same_as<T, detail::NamedSchedule>) return &schedule;
      return nullptr;
    }
  };

  std::string name_;
  std::unique_ptr<Concept> self_;
};

}  // namespace heed

// Learning rates as functions of the step.
//
// One of your own is any type with the first of these members, a lambda for one, and the others where it has a state:
//
//   double operator()(Index step) const;                    // of step 0, 1, ...
//   void observe(double validation_loss);                   // after each evaluation
//   std::vector<double> state() const;                      // what observe() has gathered, always as many numbers
//   void load_state(const std::vector<double>& state);
//
// Example:
//
//   const Schedule cosine("cosine", {.lr = 1e-3, .min_lr = 1e-4, .warmup = 100, .steps = 2000});
//   const Schedule decay([](Index step) { return 1e-3 / (1.0 + static_cast<double>(step)); });
//   std::cout << cosine(50) << ' ' << decay(50) << '\n';
#pragma once
#include <concepts>
#include <heed/optim/parameter_group.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace heed {

struct ScheduleOptions {
  double lr = 1e-3;   // the highest
  double min_lr = 0;  // none goes below it after the warm-up; cosine and linear end there
  Index warmup = 0;   // steps in which the rate rises linearly from 0 to lr: step t has lr * t / warmup
  Index steps = 0;    // of the whole training: cosine, linear, one-cycle

  Index every = 1000;  // step: after each so many steps past the warm-up ...
  double gamma = 0.1;  // ... the rate is multiplied by this; plateau: by which it falls

  double div_factor = 25;         // one-cycle: starts at lr / div_factor,
  double final_div_factor = 1e4;  // and ends at that / final_div_factor

  Index patience = 10;  // plateau: so many evaluations without improvement are borne, the next lets the rate fall
  // plateau: an improvement is a loss below best * (1 - threshold), as in PyTorch's min mode with a relative threshold.
  // Where best is negative, that is above it: a loss that is a little worse counts too.
  double threshold = 1e-4;
  Index cooldown = 0;  // plateau: evaluations after a fall that are not counted
  double eps = 1e-8;   // plateau: a fall by no more than this is left out
};

// With t the step from 0, W the warm-up and p = (t - W) / (steps - W), clamped to [0, 1]; before W see `warmup`:
//   constant       lr
//   linear         min_lr + (lr - min_lr) (1 - p)
//   cosine         min_lr + (lr - min_lr) (1 + cos(pi p)) / 2             Loshchilov and Hutter, «SGDR», 2017
//   inverse-sqrt   lr sqrt(W / t)                                          Vaswani et al., «Attention», 2017
//   step           lr gamma^floor((t - W) / every)                         torch.optim.lr_scheduler.StepLR
//   one-cycle      rises by a cosine over W steps (0: 30 % of them), falls by a cosine      OneCycleLR
//   plateau        lr gamma^n, n falls having followed from the losses that observe() saw   ReduceLROnPlateau
// All but plateau are pure functions of the step.

template <class T>
concept ScheduleLike = requires(const T& t, Index step) {
  { t(step) } -> std::convertible_to<double>;
};

// A value: a copy goes on apart.
class Schedule {
 public:
  // Throws Error for an unknown name and for options that make no sense.
  Schedule(std::string_view name, const ScheduleOptions& options);
  static const std::vector<std::string>& names();
  template <ScheduleLike T>
  requires(!std::same_as<T, Schedule>) Schedule(T own)
      : name_("own"), self_(std::make_unique<Model<T>>(std::move(own))) {}

  Schedule(const Schedule& other) : name_(other.name_), self_(other.self_->copy()) {}
  Schedule(Schedule&&) noexcept = default;
  Schedule& operator=(Schedule other) noexcept {
    name_.swap(other.name_), self_.swap(other.self_);
    return *this;
  }

  double operator()(Index step) const;  // Error below 0

  // A validation loss, after each evaluation. Of those with a name only plateau listens. NaN is no improvement.
  void observe(double validation_loss) { self_->observe(validation_loss); }

  const std::string& name() const { return name_; }  // "own" of one of your own

  // For checkpoints, float64: "course", the options and what resume() made of them, of a schedule with a name; and
  // what observe() has gathered, as "plateau" or "own". Nothing of one of your own without state().
  std::vector<NamedTensor> state() const;
  void load_state(const std::vector<NamedTensor>& state);  // throws Error where it is not of this kind of schedule

  // Continues after `step` steps from the state of a schedule whose options may differ; `last` is the rate of the last
  // step. Returns whether anything differs. The same options: as load_state(), to the same bits. Otherwise the rate
  // never jumps unless `lr` changed:
  //   another number of steps     the rest of the schedule is stretched or compressed to the steps that remain; a
  //                               schedule that is at its end stays there
  //   another lr                  the rate continues at the new lr, and the part after the warm-up runs from there
  //   other options, or a state   the part after the warm-up runs from `last`
  //   of another schedule
  // During the warm-up, the new options take effect as they are. Of one of your own, only load_state() is called.
  bool resume(const std::vector<NamedTensor>& state, Index step, double last);

 private:
  struct Concept {
    virtual ~Concept() = default;
    virtual std::unique_ptr<Concept> copy() const = 0;
    virtual double lr(Index step) const = 0;
    virtual void observe(double validation_loss) = 0;
    virtual std::vector<double> state() const = 0;
    virtual void load_state(const std::vector<double>& state) = 0;
    virtual std::vector<double> course() const = 0;
    virtual void load_course(const std::vector<double>& course) = 0;
    virtual bool resume(const std::vector<double>& course, Index step, double last) = 0;
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
            !requires { schedule.observe(0.0); }, "what has observe() must have state() and load_state()");
        return {};
      }
    }
    void load_state(const std::vector<double>& state) override {
      if constexpr (requires { schedule.state(); }) schedule.load_state(state);
    }
    std::vector<double> course() const override {
      if constexpr (requires { schedule.course(); }) return schedule.course();
      return {};
    }
    void load_course(const std::vector<double>& course) override {
      if constexpr (requires { schedule.course(); }) schedule.load_course(course);
    }
    bool resume(const std::vector<double>& course, Index step, double last) override {
      if constexpr (requires { schedule.course(); }) return schedule.resume(course, step, last);
      return false;
    }
  };

  std::string name_;
  std::unique_ptr<Concept> self_;
};

}  // namespace heed

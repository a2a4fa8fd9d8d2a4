// Learning rates as functions of the step.
//
//   const Schedule schedule("cosine", {.lr = 1e-3, .min_lr = 1e-4, .warmup = 100, .steps = 2000});
//   for (Index step = 0; step < 2000; ++step) {
//     optimizer.set_lr(schedule(step));
//     ...
//   }
#pragma once
#include <heed/optim/parameter_group.hpp>
#include <limits>
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

  Index patience = 10;      // plateau: so many evaluations without improvement are borne, the next lets the rate fall
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
class Schedule {
 public:
  // Throws Error for an unknown name and for options that make no sense.
  Schedule(std::string_view name, const ScheduleOptions& options);
  static const std::vector<std::string>& names();

  double operator()(Index step) const;

  // A validation loss, after each evaluation. Only plateau listens. NaN is no improvement.
  void observe(double validation_loss);

  const std::string& name() const { return name_; }
  const ScheduleOptions& options() const { return o_; }

  // What observe() has gathered, for checkpoints: one float64 tensor, "plateau"; nothing for the others.
  std::vector<NamedTensor> state() const;
  void load_state(const std::vector<NamedTensor>& state);  // throws Error where it is not of this kind of schedule
  template <class F>
  void visit_state(F&& f) {
    std::vector<NamedTensor> parts = state();
    for (NamedTensor& part : parts) f(part.name, part.tensor);
    load_state(parts);
  }

 private:
  enum class Kind { constant, linear, cosine, inverse_sqrt, step, one_cycle, plateau };

  Kind kind_;
  std::string name_;
  ScheduleOptions o_;
  double falls_ = 0;  // plateau's
  double best_ = std::numeric_limits<double>::infinity();
  double bad_ = 0;
  double cooling_ = 0;

  double one_cycle(double t) const;
  double fallen(double falls) const;  // plateau's rate after so many falls
};

}  // namespace heed

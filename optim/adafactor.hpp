#pragma once
#include <array>
#include <heed/optim/optimizer.hpp>

namespace heed {

struct AdafactorOptions {
  double lr = 1e-2;                         // the most that a step is, relative to the parameter's root mean square
  double beta2_decay = -0.8;                // at step t, the average of squares keeps 1 - t^beta2_decay of itself
  std::optional<double> eps1 = {};          // the least root of an averaged square; unless set, the dtype's epsilon
  double eps2 = 1e-3;                       // the least root mean square of a parameter that a step is relative to
  double d = 1;                             // updates are scaled down to this root mean square
  double weight_decay = 0;                  // decoupled: parameters shrink by lr * weight_decay per step
  bool maximize = false;                    // go up the gradient, not down
};

// Shazeer and Stern, «Adafactor: Adaptive Learning Rates with Sublinear Memory Cost», 2018, algorithms 4 and 5, as
// torch.optim.Adafactor. Of a matrix [..., n, m] it keeps the means of the squared gradient over rows and over columns,
// n + m numbers, where Adam keeps 2 n m. With share = t^beta2_decay and rms the root mean square over the parameter:
//   row_var += share (mean(g^2, -1) - row_var);  col_var += share (mean(g^2, -2) - col_var)
//   var = row_var col_var / max(mean(row_var, -2), eps1), or for vectors var += share (g^2 - var)
//   u = g / max(sqrt(var), eps1)
//   p = (1 - lr weight_decay) p - max(eps2, rms(p)) min(lr, 1 / sqrt(t)) u / max(1, rms(u) / d)
// A step takes memory for three copies of its largest parameter.
class Adafactor final : public Optimizer {
 public:
  explicit Adafactor(const ParameterGroups& parameters, AdafactorOptions options = {});

 private:
  AdafactorOptions options_;
  bool update_whole(const WholeParameter& parameter) const override;
};

}  // namespace heed

#pragma once
#include <heed/optim/optimizer.hpp>

namespace heed {

struct AdagradOptions {
  double lr = 1e-2;
  double lr_decay = 0;      // the rate of step t is lr / (1 + (t - 1) * lr_decay)
  double weight_decay = 0;  // L2: added to the gradient
  double initial_accumulator_value = 0;
  double eps = 1e-10;
  bool maximize = false;  // go up the gradient, not down
};

// Duchi et al., «Adaptive Subgradient Methods», 2011, as torch.optim.Adagrad.
class Adagrad final : public Optimizer {
 public:
  explicit Adagrad(const ParameterGroups& parameters, AdagradOptions options = {});

 private:
  AdagradOptions options_;
  void update(const UpdateChunk& chunk) const override;
};

}  // namespace heed

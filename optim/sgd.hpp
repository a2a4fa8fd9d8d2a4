#pragma once
#include <heed/optim/optimizer.hpp>

namespace heed {

struct SGDOptions {
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;  // L2: added to the gradient
  bool nesterov = false;    // needs momentum and no dampening
  bool maximize = false;    // go up the gradient, not down
};

// Stochastic gradient descent, as torch.optim.SGD: the first step of a parameter starts its momentum undampened.
class SGD final : public Optimizer {
 public:
  explicit SGD(const ParameterGroups& parameters, SGDOptions options = {});

 private:
  SGDOptions options_;
  void update(const UpdateChunk& chunk) const override;
};

}  // namespace heed

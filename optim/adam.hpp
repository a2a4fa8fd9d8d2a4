#pragma once
#include <array>
#include <heed/optim/optimizer.hpp>

namespace heed {

struct AdamOptions {
  double lr = 1e-3;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;  // L2: added to the gradient
  bool amsgrad = false;     // divide by the greatest second moment so far
  bool maximize = false;    // go up the gradient, not down
};

// Kingma and Ba, «Adam», 2015, algorithm 1, as torch.optim.Adam.
class Adam : public Optimizer {
 public:
  explicit Adam(const ParameterGroups& parameters, AdamOptions options = {})
      : Adam("Adam", parameters, options, false) {}

 protected:
  Adam(const char* name, const ParameterGroups& parameters, AdamOptions options, bool decoupled);

 private:
  AdamOptions options_;
  bool decoupled_;
  void update(const UpdateChunk& chunk) const override;
};

struct AdamWOptions {
  double lr = 1e-3;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 1e-2;  // decoupled: parameters shrink by lr * weight_decay a step
  bool amsgrad = false;
  bool maximize = false;
};

// Loshchilov and Hutter, «Decoupled Weight Decay Regularization», 2019, algorithm 2, as torch.optim.AdamW.
class AdamW final : public Adam {
 public:
  explicit AdamW(const ParameterGroups& parameters, AdamWOptions o = {})
      : Adam("AdamW", parameters, {o.lr, o.betas, o.eps, o.weight_decay, o.amsgrad, o.maximize}, true) {}
};

}  // namespace heed

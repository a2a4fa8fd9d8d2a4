#pragma once
#include <array>
#include <heed/optim/optimizer.hpp>

namespace heed {

struct LionOptions {
  double lr = 1e-4;
  std::array<double, 2> betas = {0.9, 0.99};
  double weight_decay = 0;  // decoupled
  bool maximize = false;    // go up the gradient, not down
};

// Chen et al., «Symbolic Discovery of Optimization Algorithms», 2023, program 1: steps by the sign of an average.
class Lion final : public Optimizer {
 public:
  explicit Lion(const ParameterGroups& parameters, LionOptions options = {});

 private:
  LionOptions options_;
  void update(const UpdateChunk& chunk) const override;
};

}  // namespace heed

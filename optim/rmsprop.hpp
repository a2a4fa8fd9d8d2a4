#pragma once
#include <heed/optim/optimizer.hpp>

namespace heed {

struct RMSpropOptions {
  double lr = 1e-2;
  double alpha = 0.99;
  double eps = 1e-8;
  double weight_decay = 0;  // L2: added to the gradient
  double momentum = 0;
  bool centered = false;  // divide by the standard deviation of the gradient, not by its root mean square
  bool maximize = false;  // go up the gradient, not down
};

// Tieleman and Hinton, lecture 6.5, 2012; centered: Graves, arXiv 1308.0850; as torch.optim.RMSprop.
class RMSprop final : public Optimizer {
 public:
  explicit RMSprop(const ParameterGroups& parameters, RMSpropOptions options = {});

 private:
  RMSpropOptions options_;
  static std::vector<StateSlot> slots(const RMSpropOptions& options);
  void update(const UpdateChunk& chunk) const override;
};

}  // namespace heed

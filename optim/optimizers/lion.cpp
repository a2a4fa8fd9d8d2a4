// Lion: checks of its options, and the scalars of a step.
#include <heed/optim/optimizers/optimizers.hpp>
#include <heed/optim/optimizers/with_kernels.hpp>

namespace heed {

Lion::Lion(const ParameterGroups& parameters, LionOptions o)
    : Optimizer("Lion", parameters, o.lr, o.weight_decay, {{"exp_avg"}}, o.maximize), options_(o) {
  check_option(o.betas[0] >= 0 && o.betas[0] < 1, "betas[0]", o.betas[0], "at least 0 and below 1");
  check_option(o.betas[1] >= 0 && o.betas[1] < 1, "betas[1]", o.betas[1], "at least 0 and below 1");
}

void Lion::update(const UpdateChunk& c) const {
  const kernels::LionScalars s{c.gradient_scale, 1 - c.lr * c.weight_decay, options_.betas[0], options_.betas[1], c.lr};
  detail::with_kernels(c.dtype, [&]<class T>(T, const auto& k) {
    k.lion(c.parameter<T>(), c.gradient<T>(), c.state<T>(0), c.count, s);
  });
}

}  // namespace heed

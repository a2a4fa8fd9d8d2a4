// RMSprop: checks of its options, and the scalars of a step.
#include <heed/optim/optimizers/optimizers.hpp>
#include <heed/optim/optimizers/with_kernels.hpp>

namespace heed {

std::vector<Optimizer::StateSlot> RMSprop::slots(const RMSpropOptions& o) {
  std::vector<StateSlot> list = {{"square_avg"}};
  if (o.centered) list.push_back({"grad_avg"});
  if (o.momentum > 0) list.push_back({"momentum_buffer"});
  return list;
}

RMSprop::RMSprop(const ParameterGroups& parameters, RMSpropOptions o)
    : Optimizer("RMSprop", parameters, o.lr, o.weight_decay, slots(o), o.maximize), options_(o) {
  check_option(o.alpha >= 0 && o.alpha <= 1, "alpha", o.alpha, "from 0 to 1");
  check_option(o.eps >= 0, "eps", o.eps, "0 or more");
  check_option(o.momentum >= 0, "momentum", o.momentum, "0 or more");
}

void RMSprop::update(const UpdateChunk& c) const {
  const kernels::RmspropScalars s{c.gradient_scale, c.weight_decay,    options_.alpha,
                                  options_.eps,     options_.momentum, c.lr};
  detail::with_kernels(c.dtype, [&]<class T>(T, const auto& k) {
    T* const mean = options_.centered ? c.state<T>(1) : nullptr;
    T* const buffer = options_.momentum > 0 ? c.state<T>(options_.centered ? 2 : 1) : nullptr;
    k.rmsprop(c.parameter<T>(), c.gradient<T>(), c.state<T>(0), mean, buffer, c.count, s);
  });
}

}  // namespace heed

// SGD: checks of its options, and the scalars of a step.
#include <heed/optim/optimizers/optimizers.hpp>
#include <heed/optim/optimizers/with_kernels.hpp>

namespace heed {

SGD::SGD(const ParameterGroups& parameters, SGDOptions o)
    : Optimizer("SGD", parameters, o.lr, o.weight_decay,
                o.momentum != 0 ? std::vector<StateSlot>{{"momentum_buffer"}} : std::vector<StateSlot>{}, o.maximize),
      options_(o) {
  check_option(o.momentum >= 0, "momentum", o.momentum, "0 or more");
  check_option(true, "dampening", o.dampening, "finite");
  require(!o.nesterov || (o.momentum > 0 && o.dampening == 0), "SGD: nesterov is on but momentum is ", o.momentum,
          " and dampening is ", o.dampening, "; momentum must be positive and dampening 0");
}

void SGD::update(const UpdateChunk& c) const {
  const double undampened = c.step == 1 ? 1 : 1 - options_.dampening;
  const kernels::SgdScalars s{c.gradient_scale, c.weight_decay, options_.momentum, undampened, options_.nesterov, c.lr};
  detail::with_kernels(
      c.dtype, [&]<class T>(T, const auto& k) { k.sgd(c.parameter<T>(), c.gradient<T>(), c.state<T>(0), c.count, s); });
}

}  // namespace heed

// Adagrad: checks of its options, and the scalars of a step.
#include <heed/optim/optimizers/optimizers.hpp>
#include <heed/optim/optimizers/with_kernels.hpp>

namespace heed {

Adagrad::Adagrad(const ParameterGroups& parameters, AdagradOptions o)
    : Optimizer("Adagrad", parameters, o.lr, o.weight_decay, {{"sum", o.initial_accumulator_value}}, o.maximize),
      options_(o) {
  check_option(o.lr_decay >= 0, "lr_decay", o.lr_decay, "0 or more");
  check_option(o.initial_accumulator_value >= 0, "initial_accumulator_value", o.initial_accumulator_value, "0 or more");
  check_option(o.eps >= 0, "eps", o.eps, "0 or more");
}

void Adagrad::update(const UpdateChunk& c) const {
  const double lr = c.lr / (1 + static_cast<double>(c.step - 1) * options_.lr_decay);
  const kernels::AdagradScalars s{c.gradient_scale, c.weight_decay, options_.eps, lr};
  detail::with_kernels(c.dtype, [&]<class T>(T, const auto& k) {
    k.adagrad(c.parameter<T>(), c.gradient<T>(), c.state<T>(0), c.count, s);
  });
}

}  // namespace heed

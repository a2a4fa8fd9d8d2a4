// Adam and AdamW: checks of their options, and the scalars of a step.
#include <cmath>
#include <heed/core/kernels/elementwise/scalar_math.hpp>
#include <heed/optim/optimizers/adam_step.hpp>
#include <heed/optim/optimizers/optimizers.hpp>
#include <heed/optim/optimizers/with_kernels.hpp>

namespace heed {

Adam::Adam(const char* name, const ParameterGroups& parameters, AdamOptions o, bool decoupled)
    : Optimizer(name, parameters, o.lr, o.weight_decay,
                o.amsgrad ? std::vector<StateSlot>{{"exp_avg"}, {"exp_avg_sq"}, {"max_exp_avg_sq"}}
                          : std::vector<StateSlot>{{"exp_avg"}, {"exp_avg_sq"}},
                o.maximize),
      options_(o),
      decoupled_(decoupled) {
  check_option(o.betas[0] >= 0 && o.betas[0] < 1, "betas[0]", o.betas[0], "at least 0 and below 1");
  check_option(o.betas[1] >= 0 && o.betas[1] < 1, "betas[1]", o.betas[1], "at least 0 and below 1");
  check_option(o.eps >= 0, "eps", o.eps, "0 or more");
}

void Adam::update(const UpdateChunk& c) const { detail::adam_step(c, options_.betas, options_.eps, decoupled_); }

void detail::adam_step(const UpdateChunk& c, const std::array<double, 2>& betas, double eps, bool decoupled) {
  const double t = static_cast<double>(c.step), beta1 = betas[0], beta2 = betas[1];
  thread_local scalar::LastPower first, second;
  const kernels::AdamScalars s{.gradient_scale = c.gradient_scale,
                               .l2 = decoupled ? 0 : c.weight_decay,
                               .keep = decoupled ? 1 - c.lr * c.weight_decay : 1,
                               .beta1 = beta1,
                               .beta2 = beta2,
                               .step_size = c.lr / (1 - first(beta1, t)),
                               .inverse_bias = 1 / std::sqrt(1 - second(beta2, t)),
                               .eps = eps};
  detail::with_kernels(c.dtype, [&]<class T>(T, const auto& k) {
    k.adam(c.parameter<T>(), c.gradient<T>(), c.state<T>(0), c.state<T>(1), c.state<T>(2), c.count, s);
  });
}

}  // namespace heed

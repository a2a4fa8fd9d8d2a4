// A step of Adam on a part of a parameter, against plain loops.
#include <cmath>
#include <heed/optim/optimizers/adam_step.hpp>
#include <vector>

#include "tests/support.hpp"

using namespace heed;

TEST_CASE("adam_step: three steps equal plain loops, with decoupled decay and with decay in the gradient") {
  for (const bool decoupled : {false, true}) {
    const double lr = 0.1, decay = 0.05, eps = 1e-8, beta1 = 0.8, beta2 = 0.9, scale = 0.5;
    std::vector<double> x = {1, -2, 0.25, 3, 7}, m(5), v(5), expected = x, mean(5), square(5);
    for (Index step = 1; step <= 3; ++step) {
      std::vector<double> g(5);
      for (std::size_t i = 0; i < 5; ++i) g[i] = std::sin(static_cast<double>(step) + 2 * static_cast<double>(i));
      detail::adam_step({.dtype = DType::float64,
                         .count = 5,
                         .values = x.data(),
                         .gradients = g.data(),
                         .states = {m.data(), v.data(), nullptr},
                         .gradient_scale = scale,
                         .lr = lr,
                         .weight_decay = decay,
                         .step = step},
                        {beta1, beta2}, eps, decoupled);
      const double t = static_cast<double>(step);
      for (std::size_t i = 0; i < 5; ++i) {
        const double d = g[i] * scale + (decoupled ? 0 : decay * expected[i]);
        if (decoupled) expected[i] *= 1 - lr * decay;
        mean[i] = beta1 * mean[i] + (1 - beta1) * d;
        square[i] = beta2 * square[i] + (1 - beta2) * d * d;
        expected[i] -=
            lr * (mean[i] / (1 - std::pow(beta1, t))) / (std::sqrt(square[i] / (1 - std::pow(beta2, t))) + eps);
        CHECK(std::abs(x[i] - expected[i]) < 1e-12);
      }
    }
  }
}

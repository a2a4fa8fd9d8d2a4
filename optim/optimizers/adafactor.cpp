// Adafactor, composed of ops on whole parameters. The formulas are in optimizers.hpp.
#include <cmath>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/reductions.hpp>
#include <heed/core/kernels/elementwise/scalar_math.hpp>
#include <heed/optim/optimizers/optimizers.hpp>
#include <limits>

namespace heed {

namespace {

std::optional<Shape> without_axis(const Shape& shape, int axis) {  // size 1 on this axis; nullopt for vectors
  if (shape.rank() < 2) return {};
  Shape means = shape;
  means[axis] = 1;
  return means;
}

double root_mean_square(const Tensor& x) { return norm(x).item<double>() / std::sqrt(static_cast<double>(x.numel())); }

}  // namespace

Adafactor::Adafactor(const ParameterGroups& parameters, AdafactorOptions o)
    : Optimizer("Adafactor", parameters, o.lr, o.weight_decay,
                {{"row_var", 0, [](const Shape& s, bool) { return without_axis(s, -1); }},
                 {"col_var", 0, [](const Shape& s, bool) { return without_axis(s, -2); }},
                 {"variance", 0, [](const Shape& s, bool) { return s.rank() < 2 ? std::optional(s) : std::nullopt; }}},
                o.maximize),
      options_(o) {
  check_option(o.beta2_decay <= 0, "beta2_decay", o.beta2_decay, "0 or less");
  check_option(o.eps1.value_or(0) >= 0, "eps1", o.eps1.value_or(0), "0 or more");
  check_option(o.eps2 >= 0, "eps2", o.eps2, "0 or more");
  check_option(o.d >= 1, "d", o.d, "1 or more");
}

bool Adafactor::update_whole(const WholeParameter& p) const {
  if (p.values.numel() == 0) return true;
  const double epsilon = p.values.dtype() == DType::float32 ? std::numeric_limits<float>::epsilon()
                                                            : std::numeric_limits<double>::epsilon();
  thread_local scalar::LastPower power;
  const double t = static_cast<double>(p.step), share = power(t, options_.beta2_decay);
  const double eps1 = options_.eps1.value_or(epsilon);
  const Tensor g = p.gradient * p.gradient_scale;
  const auto average = [&](Tensor mean, const Tensor& next) {
    mean.copy_(mean + share * (next - mean));
    return mean;
  };
  Tensor var;
  if (p.values.rank() < 2) {
    var = average(p.states[2], square(g));
  } else {
    const Tensor squares = square(g), row_var = average(p.states[0], mean(squares, {-1}, true));  // [..., n, 1]
    const Tensor col_var = average(p.states[1], mean(squares, {-2}, true));                       // [..., 1, m]
    var = row_var / maximum(mean(row_var, {-2}, true), eps1) * col_var;
  }
  const Tensor u = g * rsqrt(maximum(var, eps1 * eps1));
  const double alpha = std::max(options_.eps2, root_mean_square(p.values)) * std::min(p.lr, 1 / std::sqrt(t));
  Tensor values = p.values;
  values.copy_((1 - p.lr * p.weight_decay) * p.values - alpha / std::max(1.0, root_mean_square(u) / options_.d) * u);
  return true;
}

}  // namespace heed

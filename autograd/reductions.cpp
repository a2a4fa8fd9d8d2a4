#include <cmath>
#include <heed/autograd/reductions.hpp>
#include <heed/core/parallel.hpp>
#include <heed/core/reduce.hpp>
#include <limits>

namespace heed {
namespace {

using detail::Grouped;
using kernels::Spread;

constexpr Index kMapGrain = 16384;

// f of each element of a contiguous tensor, in float64.
template <class F>
Tensor mapped(const Tensor& x, F f) {
  Tensor y = Tensor::empty_like(x);
  detail::with_float(x.dtype(), [&](auto t) {
    using T = decltype(t);
    const T* from = x.ptr<T>();
    T* to = y.ptr<T>();
    parallel_for(x.numel(), kMapGrain, [&](Index b, Index e) {
      for (Index i = b; i < e; ++i) to[i] = static_cast<T>(f(static_cast<double>(from[i])));
    });
  });
  return y;
}
// The same of two tensors of one shape and dtype.
template <class F>
Tensor mapped(const Tensor& x, const Tensor& z, F f) {
  Tensor y = Tensor::empty_like(x);
  detail::with_float(x.dtype(), [&](auto t) {
    using T = decltype(t);
    const T *from = x.ptr<T>(), *with = z.ptr<T>();
    T* to = y.ptr<T>();
    parallel_for(x.numel(), kMapGrain, [&](Index b, Index e) {
      for (Index i = b; i < e; ++i)
        to[i] = static_cast<T>(f(static_cast<double>(from[i]), static_cast<double>(with[i])));
    });
  });
  return y;
}

Tensor scaled(const Tensor& x, double factor) {
  return mapped(x, [factor](double v) { return v * factor; });
}

// x's shape with 1 for each reduced axis, or without these.
Shape reduced_shape(const Shape& x, unsigned reduced, bool keepdim) {
  Shape y;
  for (int i = 0; i < x.rank(); ++i) {
    const bool kept = !(reduced >> i & 1u);
    if (kept || keepdim) y.push_back(kept ? x[i] : 1);
  }
  return y;
}

// y = factor * sum(x), and dx = factor * dy for every element.
Tensor sum_times(const char* op, In x, unsigned reduced, bool keepdim, double factor) {
  Tensor y = detail::sum_axes(x, reduced);
  if (factor != 1) y = scaled(y, factor);
  y = y.view(reduced_shape(x.shape(), reduced, keepdim));
  record(op, x.where(), y, {x}, saved(), [reduced, factor, shape = x.shape()](Grads& d, const Tensor& dy) {
    const Tensor g = factor == 1 ? dy : scaled(dy, factor);
    d.add(0, g.view(reduced_shape(shape, reduced, true)).expand(shape));
  });
  return y;
}

// Adds a * f(x, center), see kernels::Spread, to the gradient of input 0.
void spread_into(Grads& d, const Grouped& g, Spread op, const Tensor& center, const Tensor& a) {
  if (!g.in_order()) {
    Tensor dx = Tensor::empty(g.shape(), g.x.dtype());
    detail::spread(op, g, center, a, dx, false);
    d.add(0, g.to_input(dx));
  } else if (Target t = d.dense(0)) {
    detail::spread(op, g, center, a, t.gradient, t.accumulate);
  }
}

// y = sum (x - m)^2 / (n - 1 or n), m = mean(x): dx = 2 dy (x - m) / (n - 1 or n). Its root s: dx = dy (x - m) / (s (n
// - 1 or n)).
Tensor deviation(const char* op, bool root, In x, const Axes& axes, VarianceOptions options) {
  detail::check_float(op, x);
  const unsigned reduced = axes.of(op, x);
  const Grouped g(x, reduced);
  const double n = static_cast<double>(g.n), divisor = n - (options.unbiased ? 1 : 0);
  const Tensor center = mapped(detail::reduce(kernels::Reduction::sum, g), [n](double v) { return v / n; });
  const Tensor values = mapped(detail::reduce(kernels::Reduction::deviation, g, center), [=](double v) {
    if (divisor <= 0) return std::numeric_limits<double>::quiet_NaN();
    return root ? std::sqrt(v / divisor) : v / divisor;
  });
  Tensor y = g.to_result(values, options.keepdim);
  record(op, x.where(), y, {x}, saved(x.tensor(), center, root ? values : Tensor()),
         [reduced, divisor, root](Grads& d, const Tensor& dy, const Tensor& in, const Tensor& mean, const Tensor& s) {
           const Grouped groups(in, reduced);
           Tensor a = groups.from_result(dy);
           if (root)
             a = mapped(a, s, [divisor](double v, double u) { return u == 0 ? 0 : v / (u * divisor); });
           else
             a = scaled(a, 2 / divisor);
           spread_into(d, groups, Spread::deviation, mean, a);
         });
  return y;
}

// |x|^p summed, then the root: dx = dy sign(x) |x|^(p - 1) / y^(p - 1); 0 where x or y is 0.
Tensor sum_of_powers(const Grouped& g, double p) {
  Grouped powers = g;
  powers.x = mapped(g.x, [p](double v) { return std::pow(std::fabs(v), p); });
  return mapped(detail::reduce(kernels::Reduction::sum, powers), [p](double v) { return std::pow(v, 1 / p); });
}

void norm_backward(Grads& d, const Grouped& g, double p, const Tensor& dy, const Tensor& y, const Tensor& place) {
  if (p == 1) return spread_into(d, g, Spread::sign, {}, dy);
  if (p == detail::kInfinity) {
    const Tensor dx = detail::unfind(g, place, dy);
    const auto signed_by = [](double v, double x) { return x > 0 ? v : x < 0 ? -v : x == 0 ? 0 : x; };
    return d.add(0, g.to_input(mapped(dx, g.x, signed_by)));
  }
  const Tensor a = mapped(dy, y, [p](double v, double u) { return u == 0 ? 0 : v / std::pow(u, p - 1); });
  if (p == 2) return spread_into(d, g, Spread::deviation, {}, a);
  Grouped powers = g;
  powers.x = mapped(g.x, [p](double v) { return v == 0 ? 0 : std::copysign(std::pow(std::fabs(v), p - 1), v); });
  spread_into(d, powers, Spread::deviation, {}, a);
}

}  // namespace

Tensor sum(In x, const Axes& axes, bool keepdim) {
  if (detail::is_integer(x)) {
    note_reads({x});
    return detail::sum_integers("sum", x, axes.of("sum", x), keepdim);
  }
  check(x->defined() && x.dtype() != DType::bfloat16, x.where(), "sum: x is ", x.tensor(),
        "; it must be float32, float64, int32 or bool8");
  return sum_times("sum", x, axes.of("sum", x), keepdim, 1);
}

Tensor mean(In x, const Axes& axes, bool keepdim) {
  check(!detail::is_integer(x), x.where(), "mean: x is ", x.tensor(),
        "; it must be float32 or float64: convert it with to(DType::float32) first");
  detail::check_float("mean", x);
  const unsigned reduced = axes.of("mean", x);
  double n = 1;
  for (int i = 0; i < x.rank(); ++i)
    if (reduced >> i & 1u) n *= static_cast<double>(x.shape()[i]);
  return sum_times("mean", x, reduced, keepdim, 1 / n);
}

Tensor variance(In x, const Axes& axes, VarianceOptions options) {
  return deviation("variance", false, x, axes, options);
}
Tensor stddev(In x, const Axes& axes, VarianceOptions options) { return deviation("stddev", true, x, axes, options); }

// y = m + log(sum(e^(x - m))): dx = dy e^(x - y).
Tensor logsumexp(In x, const Axes& axes, bool keepdim) {
  detail::check_float("logsumexp", x);
  const unsigned reduced = axes.of("logsumexp", x);
  const Grouped g(x, reduced);
  // An infinite maximum is not subtracted: inf - inf would be NaN.
  const Tensor m = mapped(detail::reduce(kernels::Reduction::max, g), [](double v) { return std::isinf(v) ? 0 : v; });
  const Tensor values =
      mapped(detail::reduce(kernels::Reduction::exp, g, m), m, [](double s, double v) { return std::log(s) + v; });
  Tensor y = g.to_result(values, keepdim);
  record("logsumexp", x.where(), y, {x}, saved(x.tensor(), values),
         [reduced](Grads& d, const Tensor& dy, const Tensor& in, const Tensor& result) {
           const Grouped groups(in, reduced);
           const Tensor center = mapped(result, [](double v) { return v == -detail::kInfinity ? 0 : v; });
           spread_into(d, groups, Spread::exp, center, groups.from_result(dy));
         });
  return y;
}

Tensor norm(In x, const Axes& axes, NormOptions options) {
  const double p = options.p;
  detail::check_float("norm", x);
  check(p > 0, x.where(), "norm: p is ", p, "; it must be greater than 0");
  const unsigned reduced = axes.of("norm", x);
  const Grouped g(x, reduced);
  Tensor values, place;
  if (p == 1) {
    values = detail::reduce(kernels::Reduction::abs, g);
  } else if (p == 2) {
    values = mapped(detail::reduce(kernels::Reduction::square, g), [](double v) { return std::sqrt(v); });
  } else if (p == detail::kInfinity) {
    values = detail::reduce(kernels::Reduction::max_abs, g);
    if (wants_gradient({x}) && g.n > 0) {
      Grouped sizes = g;
      sizes.x = mapped(g.x, [](double v) { return std::fabs(v); });
      place = detail::find(sizes, values);
    }
  } else {
    values = sum_of_powers(g, p);
  }
  Tensor y = g.to_result(values, options.keepdim);
  record("norm", x.where(), y, {x}, saved(x.tensor(), values, place),
         [reduced, p](Grads& d, const Tensor& dy, const Tensor& in, const Tensor& result, const Tensor& at) {
           const Grouped groups(in, reduced);
           if (groups.n > 0) norm_backward(d, groups, p, groups.from_result(dy), result, at);
         });
  return y;
}

}  // namespace heed

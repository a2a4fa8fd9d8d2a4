// Sums, means, variances, norms and logsumexp over axes. Values are scaled where squares or powers would overflow.
#include <algorithm>
#include <cmath>
#include <heed/autograd/reductions.hpp>
#include <heed/core/kernels/elementwise/scalar_math.hpp>
#include <heed/core/parallel.hpp>
#include <heed/core/reduce/reduce.hpp>
#include <limits>

namespace heed {
namespace {

using detail::Grouped;
using kernels::Spread;

// f of the elements of two contiguous tensors of one shape and dtype, computed in float64.
template <class F>
Tensor mapped(const Tensor& x, const Tensor& z, F f) {
  Tensor y = Tensor::empty_like(x);
  detail::with_float(x.dtype(), [&]<class T>(T) {
    const T *from = x.ptr<T>(), *with = z.ptr<T>();
    T* to = y.ptr<T>();
    parallel_for_each(x.numel(), grain_for(2), [&](Index i) {
      to[i] = static_cast<T>(f(static_cast<double>(from[i]), static_cast<double>(with[i])));
    });
  });
  return y;
}

// f of each element of a contiguous tensor.
template <class F>
Tensor mapped(const Tensor& x, F f) {
  return mapped(x, x, [f](double v, double) { return f(v); });
}

Tensor scaled(const Tensor& x, double factor) {
  return mapped(x, [factor](double v) { return v * factor; });
}

// x's shape with size 1 for each reduced axis, or without these axes.
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
  Tensor y = detail::sum_axes(detail::widened(x), reduced);
  if (factor != 1) y = scaled(y, factor);
  y = detail::cast(y.view(reduced_shape(x.shape(), reduced, keepdim)), x.dtype());
  record(op, x.where(), y, {x}, saved(), [reduced, factor, shape = x.shape()](Grads& d, const Tensor& dy) {
    const Tensor g = factor == 1 ? dy : scaled(dy, factor);
    d.add(0, g.view(reduced_shape(shape, reduced, true)).expand(shape));
  });
  return y;
}

// Adds a * f(x, center), see kernels::Spread, to the gradient of input 0.
void spread_into(Grads& d, const Grouped& g, Spread op, const detail::Center& center, const Tensor& a) {
  if (!g.in_order()) {
    Tensor dx = Tensor::empty(g.shape(), g.x.dtype());
    detail::spread(op, g, center, a, dx, false);
    d.add(0, g.to_input(dx));
  } else if (Target t = d.dense(0)) {
    detail::spread(op, g, center, a, t.gradient, t.accumulate);
  }
}

// Whether f is true for each element of a contiguous tensor.
template <class F>
bool all_elements(const Tensor& x, F f) {
  bool all = true;
  detail::with_float(x.dtype(), [&]<class T>(T) {
    const T* from = x.ptr<T>();
    all = std::all_of(from, from + x.numel(), [f](T v) { return f(static_cast<double>(v)); });
  });
  return all;
}

// Whether the sums of p-th powers below these roots fitted their type, without overflow or digits lost near 0, and
// whether the roots have all their digits.
bool within_range(const Tensor& roots, double p) {
  const bool wide = roots.dtype() == DType::float64;
  const double min_value = std::max(scalar::pow(wide ? 1e-290 : 1e-30, 1 / p), wide ? 1e-300 : 1e-37);
  const double max_value = scalar::pow(wide ? 1e308 : 1e38, 1 / p);
  return all_elements(roots, [=](double v) { return v > min_value && v < max_value; });
}

// Whether each element is 0 or a number with all its digits.
bool has_digits(const Tensor& x) {
  const bool wide = x.dtype() == DType::float64;
  const double min_value = wide ? 1e-307 : 1e-37, max_value = wide ? 1e308 : 3e38;
  return all_elements(x, [=](double v) { return v == 0 || (std::fabs(v) > min_value && std::fabs(v) < max_value); });
}

// x / unit, exactly. The unit of a group is the power of two above its largest |x|, or 1 if there is none.
Grouped in_units(const Grouped& g, Tensor& unit) {
  const int max_exponent = g.x.dtype() == DType::float32 ? 126 : 1022;
  unit = mapped(detail::reduce(kernels::Reduction::max_abs, g), [max_exponent](double v) {
    int exponent = 0;
    if (std::isfinite(v) && v != 0) std::frexp(v, &exponent);
    return std::ldexp(1.0, std::clamp(exponent, -max_exponent, max_exponent));
  });
  Grouped scaled = g;
  scaled.x = Tensor::empty_like(g.x);
  detail::spread(Spread::deviation, g, {}, mapped(unit, [](double u) { return 1 / u; }), scaled.x, false);
  return scaled;
}

struct Deviation {
  detail::Center mean;
  Tensor values;  // the variance, or its square root
};

// Two passes. Differences from the first element give the mean and its rounding error r. Squared differences from the
// rounded mean then sum up to n r^2 too much, which is subtracted.
Deviation deviation_of(const Grouped& g, double divisor, bool root) {
  const Tensor first = g.x.as_strided({g.outer, g.inner}, {g.n * g.inner, 1}, g.x.offset()).dense();
  const Tensor sums = detail::reduce(kernels::Reduction::difference, g, first);
  const double n = static_cast<double>(g.n);
  Deviation y{{Tensor::empty_like(sums), Tensor::empty_like(sums)}, {}};
  detail::with_float(sums.dtype(), [&]<class T>(T) {
    for (Index i = 0; i < sums.numel(); ++i) {
      const double from = static_cast<double>(first.ptr<T>()[i]), more = static_cast<double>(sums.ptr<T>()[i]) / n;
      const T mean = y.mean.value.ptr<T>()[i] = static_cast<T>(from + more);
      y.mean.rest.ptr<T>()[i] = static_cast<T>((from - static_cast<double>(mean)) + more);
    }
  });
  y.values = mapped(detail::reduce(kernels::Reduction::deviation, g, y.mean.value), y.mean.rest,
                    [=](double squares, double rest) {
                      const double exact = squares - n * rest * rest, v = (exact < 0 ? 0 : exact) / divisor;
                      return root ? std::sqrt(v) : v;
                    });
  return y;
}

Deviation rescaled_deviation(const Grouped& g, double divisor, bool root) {
  if (g.n == 0) {
    const Tensor none = Tensor::zeros(g.result_shape(), g.x.dtype());
    return {{none, none}, Tensor::full(none.shape(), std::numeric_limits<double>::quiet_NaN(), none.dtype())};
  }
  Deviation y = deviation_of(g, divisor, root);
  if (divisor == 0 || within_range(y.values, root ? 2 : 1)) return y;
  Tensor unit;
  y = deviation_of(in_units(g, unit), divisor, root);
  const auto times = [](double v, double u) { return v * u; };
  y.mean = {mapped(y.mean.value, unit, times), mapped(y.mean.rest, unit, times)};
  y.values = mapped(y.values, unit, [root](double v, double u) { return root ? v * u : v * u * u; });
  return y;
}

// y = sum (x - m)^2 / c, m = mean(x), c = n - correction: dx = 2 dy (x - m) / c. Its root s: dx = dy (x - m) / (s c).
Tensor deviation(const char* op, bool root, In x, const Axes& axes, VarianceOptions options) {
  detail::check_float(op, x);
  check(std::isfinite(options.correction), x.where(), op, ": correction is ", options.correction,
        "; it must be finite");
  const unsigned reduced = axes.of(op, x);
  const Grouped g(x, reduced);
  const double divisor = std::max(0.0, static_cast<double>(g.n) - options.correction);
  const Deviation found = rescaled_deviation(g, divisor, root);
  Tensor y = g.to_result(found.values, options.keepdim);
  record(op, x.where(), y, {x}, saved(x.tensor(), found.mean.value, found.mean.rest, root ? found.values : Tensor()),
         [reduced, divisor, root](Grads& d, const Tensor& dy, const Tensor& in, const Tensor& mean, const Tensor& rest,
                                  const Tensor& s) {
           const Grouped groups(in, reduced);
           const Tensor a = groups.from_result(dy);
           if (!root) return spread_into(d, groups, Spread::deviation, {mean, rest}, scaled(a, 2 / divisor));
           const auto divided = [divisor](double v, double u) { return u == 0 ? 0 : v / (u * divisor); };
           const Tensor shares = mapped(a, s, divided);
           if (divisor == 0 || (within_range(s, 2) && has_digits(shares)))
             return spread_into(d, groups, Spread::deviation, {mean, rest}, shares);
           // Computed in units: a / s may overflow, or the mean and s have lost digits.
           Tensor unit;
           const Grouped units = in_units(groups, unit);
           const Deviation in_them = deviation_of(units, divisor, true);
           spread_into(d, units, Spread::deviation, in_them.mean, mapped(a, in_them.values, divided));
         });
  return y;
}

// (sum |x|^p)^(1/p), 0 < p < infinity.
Tensor root_of_powers(const Grouped& g, double p) {
  if (p == 1) return detail::reduce(kernels::Reduction::abs, g);
  if (p == 2) return mapped(detail::reduce(kernels::Reduction::square, g), [](double v) { return std::sqrt(v); });
  Grouped powers = g;
  powers.x = mapped(g.x, [p](double v) { return scalar::pow(std::fabs(v), p); });
  return mapped(detail::reduce(kernels::Reduction::sum, powers), [p](double v) { return scalar::pow(v, 1 / p); });
}

Tensor rescaled_norm(const Grouped& g, double p) {
  if (p == detail::kInfinity) return detail::reduce(kernels::Reduction::max_abs, g);
  const Tensor y = root_of_powers(g, p);
  if (p == 1 || g.n == 0 || within_range(y, p)) return y;
  Tensor unit;
  const Tensor scaled_norm = root_of_powers(in_units(g, unit), p);
  return mapped(scaled_norm, unit, [](double v, double u) { return v * u; });
}

// All elements with the largest |x| share dy.
void greatest_backward(Grads& d, const Grouped& g, const Tensor& dy, const Tensor& y) {
  Grouped sizes = g;
  sizes.x = mapped(g.x, [](double v) { return std::fabs(v); });
  Tensor shares = Tensor::empty_like(g.x);
  detail::spread(Spread::equal, sizes, {y, {}}, detail::share(sizes, y, dy), shares, false);
  const auto signed_by = [](double v, double x) { return x > 0 ? v : x < 0 ? -v : x == 0 ? 0 : x; };
  d.add(0, g.to_input(mapped(shares, g.x, signed_by)));
}

// dx = dy sign(x) (|x| / y)^(p - 1), 0 < p < infinity; 0 where x or y is 0. Computed from y if its powers and the
// quotients fit the type. Otherwise computed from x in units, where neither 1 / y nor a power overflows.
void norm_backward(Grads& d, const Grouped& g, double p, const Tensor& dy, const Tensor& y) {
  if (p == 1) return spread_into(d, g, Spread::sign, {}, dy);
  const auto power_of = [p](double v) { return v == 0 ? 0 : std::copysign(scalar::pow(std::fabs(v), p - 1), v); };
  const auto divided = [p](double v, double u) { return u == 0 ? 0 : v / (p == 2 ? u : scalar::pow(u, p - 1)); };
  Grouped powers = g;
  Tensor a = mapped(dy, y, divided);
  if (!within_range(y, p) || !has_digits(a)) {
    Tensor unit;
    powers = in_units(g, unit);
    a = mapped(dy, root_of_powers(powers, p), divided);
  }
  if (p != 2) powers.x = mapped(powers.x, power_of);
  spread_into(d, powers, Spread::deviation, {}, a);
}

}  // namespace

Tensor sum(In x, const Axes& axes, bool keepdim) {
  if (detail::is_integer(x)) {
    note_reads({x});
    return detail::sum_integers("sum", x, axes.of("sum", x), keepdim);
  }
  check(x->defined(), x.where(), "sum: x is undefined; it must be floating, int32 or bool8");
  return sum_times("sum", x, axes.of("sum", x), keepdim, 1);
}

Tensor mean(In x, const Axes& axes, bool keepdim) {
  check(!detail::is_integer(x), x.where(), "mean: x is ", x.tensor(),
        "; it must be floating: convert it with to(DType::float32) first");
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
      mapped(detail::reduce(kernels::Reduction::exp, g, m), m, [](double s, double v) { return scalar::log(s) + v; });
  Tensor y = g.to_result(values, keepdim);
  record("logsumexp", x.where(), y, {x}, saved(x.tensor(), values),
         [reduced](Grads& d, const Tensor& dy, const Tensor& in, const Tensor& result) {
           const Grouped groups(in, reduced);
           const Tensor center = mapped(result, [](double v) { return v == -detail::kInfinity ? 0 : v; });
           spread_into(d, groups, Spread::exp, {center, {}}, groups.from_result(dy));
         });
  return y;
}

Tensor norm(In x, const Axes& axes, NormOptions options) {
  const double p = options.p;
  detail::check_float("norm", x);
  check(p > 0, x.where(), "norm: p is ", p, "; it must be greater than 0");
  const unsigned reduced = axes.of("norm", x);
  const Grouped g(x, reduced);
  const Tensor values = rescaled_norm(g, p);
  Tensor y = g.to_result(values, options.keepdim);
  record("norm", x.where(), y, {x}, saved(x.tensor(), values),
         [reduced, p](Grads& d, const Tensor& dy, const Tensor& in, const Tensor& result) {
           const Grouped groups(in, reduced);
           if (groups.n == 0) return;
           if (p == detail::kInfinity)
             greatest_backward(d, groups, groups.from_result(dy), result);
           else
             norm_backward(d, groups, p, groups.from_result(dy), result);
         });
  return y;
}

}  // namespace heed

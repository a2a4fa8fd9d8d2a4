// layer_norm(), rms_norm() and normalize() over the last axis.
#include <algorithm>
#include <cmath>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/matmul.hpp>
#include <heed/autograd/norms.hpp>
#include <heed/core/kernels/dispatch/dispatch.hpp>
#include <heed/core/kernels/reduce/norm.hpp>
#include <heed/core/parallel.hpp>
#include <heed/core/tensor.hpp>

namespace heed {
namespace {

template <class T>
const kernels::NormKernels<T>& table() {
  return kernels::of<T>(kernels::norm_table());
}

void check_vector(const char* op, const char* name, In x, const Tensor& v) {
  check(!v.defined() || (v.shape() == Shape{x.dim(-1)} && v.dtype() == x.dtype()), x.where(), op, ": x is ", x.tensor(),
        " but ", name, " is ", v, "; it must be ", Shape{x.dim(-1)}, " ", x.dtype());
}

void check_input(const char* op, In x, double eps) {
  check(x->defined() && (x.dtype() == DType::float32 || x.dtype() == DType::float64), x.where(), op, ": x is ",
        x.tensor(), "; it must be float32 or float64");
  check(x.rank() > 0 && x.dim(-1) > 0, x.where(), op, ": x is ", x.tensor(),
        "; it must have a last axis of 1 element or more");
  check(eps >= 0, x.where(), op, ": eps is ", eps, "; it must not be negative");
}

// Memory for the normalised values, which forward writes and backward reads: bfloat16, where products round their
// operands to bfloat16, which is half as much as x. Undefined if backward reads x.
Tensor normal_to_keep(const Tensor& x) {
  return x.dtype() == DType::float32 && matmul_precision() == DType::bfloat16
             ? Tensor::empty(x.shape(), DType::bfloat16)
             : Tensor();
}

// What forward reads and writes, all contiguous.
struct NormTensors {
  Tensor x = {};                  // [rows, n]
  Tensor weight = {}, bias = {};  // [n], or undefined
  Tensor y = {}, normal = {};     // [rows, n]; normal: normal_to_keep(), or undefined
  Tensor means = {};              // [2, rows]: the means, then their rounding errors; undefined for rms_norm
  Tensor rstd = {};               // [rows]
};

template <class T>
void forward(const NormTensors& all, double eps) {
  const Tensor &normal = all.normal, &means = all.means;
  const Index n = all.x.dim(-1), rows = all.x.rows();
  const auto kernel = means.defined() ? table<T>().layer_norm : table<T>().rms_norm;
  parallel_for(rows, std::max<Index>(4, grain_for(2 * n)), [&](Index begin, Index end) {
    const kernels::NormForward<T> a{all.x.ptr<T>() + begin * n,
                                    all.weight.ptr<T>(),
                                    all.bias.ptr<T>(),
                                    all.y.ptr<T>() + begin * n,
                                    normal.defined() ? normal.ptr<std::uint16_t>() + begin * n : nullptr,
                                    means.defined() ? means.ptr<T>() + begin : nullptr,
                                    means.defined() ? means.ptr<T>() + rows + begin : nullptr,
                                    all.rstd.ptr<T>() + begin};
    kernel(a, end - begin, n, static_cast<T>(eps));
  });
}

struct NormTargets {
  Target x, weight, bias;
};

// `kept` is x or its normalised values. The gradients of weight and bias are sums over rows: each block of rows
// computes a partial sum, and these are added in order. Blocks depend on the shape only, so the bits do not depend on
// the threads.
template <class T>
void backward(const NormTargets& d, const Tensor& dy, const Tensor& kept, const Tensor& weight, const Tensor& means,
              const Tensor& rstd) {
  const Target &dx = d.x, &dweight = d.weight, &dbias = d.bias;
  const Index n = kept.dim(-1), rows = kept.rows();
  const bool normal = kept.dtype() == DType::bfloat16;
  const Index block = (std::max(grain_for(2 * n), (rows + 63) / 64) + 3) / 4 * 4;
  const Index blocks = (rows + block - 1) / block;
  const Tensor dweights = dweight ? Tensor::empty({blocks, n}, rstd.dtype()) : Tensor();
  const Tensor dbiases = dbias ? Tensor::empty({blocks, n}, rstd.dtype()) : Tensor();
  const auto kernel = means.defined() ? table<T>().layer_norm_backward : table<T>().rms_norm_backward;
  parallel_for_each(blocks, 1, [&](Index b) {
    const Index first = b * block;
    const auto sums = [&](const Tensor& all) -> T* {
      if (!all.defined()) return nullptr;
      return std::fill_n(all.ptr<T>() + b * n, n, T(0)) - n;
    };
    const kernels::NormBackward<T> a{dy.ptr<T>() + first * n,
                                     normal ? nullptr : kept.ptr<T>() + first * n,
                                     normal ? kept.ptr<std::uint16_t>() + first * n : nullptr,
                                     weight.ptr<T>(),
                                     means.defined() ? means.ptr<T>() + first : nullptr,
                                     means.defined() ? means.ptr<T>() + rows + first : nullptr,
                                     rstd.ptr<T>() + first,
                                     dx ? dx.gradient.ptr<T>() + first * n : nullptr,
                                     dx.accumulate,
                                     sums(dweights),
                                     sums(dbiases)};
    kernel(a, std::min(block, rows - first), n);
  });
  if (dweight) table<T>().sum_rows(dweights.ptr<T>(), blocks, n, n, dweight.gradient.ptr<T>(), dweight.accumulate);
  if (dbias) table<T>().sum_rows(dbiases.ptr<T>(), blocks, n, n, dbias.gradient.ptr<T>(), dbias.accumulate);
}

// ---- Rows of subnormal numbers, with eps 0 ----

// The factor for rows whose rstd overflows. It turns even the smallest subnormal into a normal number of moderate size.
double lift_of(DType dtype) { return dtype == DType::float64 ? 0x1p1000 : 0x1p120; }

// x with each row whose rstd is infinite, unless it is all 0, multiplied by lift_of(). `factors` [rows, 1] is the
// factor of each row (1 for other rows), or undefined if no row is lifted.
Tensor lifted(const Tensor& x, const Tensor& rstd, Tensor& factors) {
  Tensor y = x;
  detail::with_float(x.dtype(), [&]<class T>(T) {
    const Index n = x.dim(-1);
    for (Index r = 0; r < x.rows(); ++r) {
      if (!std::isinf(rstd.ptr<T>()[r])) continue;
      const T* row = x.ptr<T>() + r * n;
      if (std::all_of(row, row + n, [](T v) { return v == 0; })) continue;
      if (!factors.defined()) factors = Tensor::ones({x.rows(), 1}, x.dtype()), y = x.clone();
      const T factor = factors.ptr<T>()[r] = static_cast<T>(lift_of(x.dtype()));
      std::transform(row, row + n, y.ptr<T>() + r * n, [factor](T v) { return v * factor; });
    }
  });
  return y;
}

// forward(), run again on lifted rows if there are any. Sets x to the values that backward reads; returns the factors.
Tensor forward_lifted(NormTensors& all, double eps) {
  Tensor factors;
  detail::with_float(all.x.dtype(), [&]<class T>(T) {
    forward<T>(all, eps);
    if (static_cast<T>(eps) != 0) return;
    all.x = lifted(all.x, all.rstd, factors);
    if (factors.defined()) forward<T>(all, eps);
  });
  return factors;
}

// Backward of all norms. kInputs: 1 for x alone, 2 with weight, 3 with weight and bias. `means` is undefined for norms
// that subtract no mean. The gradient of lifted rows is computed in its own memory and multiplied by their factors.
template <int kInputs>
void norm_backward(Grads& d, const Tensor& dy, const Tensor& kept, const Tensor& weight, const Tensor& means,
                   const Tensor& rstd, const Tensor& factors) {
  const bool is_lifted = factors.defined() && d.needs(0);
  NormTargets to;
  to.x = is_lifted ? Target{Tensor::empty(dy.shape(), factors.dtype())} : d.dense(0);
  if constexpr (kInputs > 1) to.weight = d.dense(1);
  if constexpr (kInputs > 2) to.bias = d.dense(2);
  detail::with_float(rstd.dtype(), [&]<class T>(T) { backward<T>(to, dy, kept, weight, means, rstd); });
  const Tensor& g = to.x.gradient;
  if (is_lifted) d.add(0, (g.view({factors.dim(0), g.dim(-1)}) * factors).view(g.shape()));
}

}  // namespace

// y = weight * n + bias, where n = (x - mean) * rstd, over the last axis.
// Backward, with g = weight * dy and means over the last axis:
//   dx = rstd * (g - mean(g) - n * mean(g * n));  dweight = sum(dy * n);  dbias = sum(dy)
Tensor layer_norm(In x, In weight, In bias, double eps) {
  check_input("layer_norm", x, eps);
  check_vector("layer_norm", "weight", x, weight);
  check_vector("layer_norm", "bias", x, bias);
  NormTensors all{.x = x->dense(), .weight = weight->dense(), .bias = bias->dense()};
  Tensor y = all.y = Tensor::empty(x.shape(), x.dtype());
  all.normal = normal_to_keep(all.x);
  all.means = Tensor::empty({2, x.rows()}, x.dtype()), all.rstd = Tensor::empty({x.rows()}, x.dtype());
  const Tensor factors = forward_lifted(all, eps);
  record("layer_norm", x.where(), y, {x, weight, bias},
         saved(all.normal.defined() ? all.normal : all.x, all.weight, all.means, all.rstd, factors), norm_backward<3>);
  return y;
}

// y = weight * n, where n = x * rstd. Backward, with g = weight * dy:
//   dx = rstd * (g - n * mean(g * n));  dweight = sum(dy * n)
Tensor rms_norm(In x, In weight, double eps) {
  check_input("rms_norm", x, eps);
  check_vector("rms_norm", "weight", x, weight);
  NormTensors all{.x = x->dense(), .weight = weight->dense()};
  Tensor y = all.y = Tensor::empty(x.shape(), x.dtype());
  all.normal = normal_to_keep(all.x);
  all.rstd = Tensor::empty({x.rows()}, x.dtype());
  const Tensor factors = forward_lifted(all, eps);
  record("rms_norm", x.where(), y, {x, weight},
         saved(all.normal.defined() ? all.normal : all.x, all.weight, Tensor(), all.rstd, factors), norm_backward<2>);
  return y;
}

// y = x / |x| = rms_norm(x) with weight 1 / sqrt(n) and eps 0. Where |x| is 0, rms_norm divides by 0: there y and rstd
// are set to 0, and so is the gradient. The direction of a single element is its sign, whose gradient is 0.
Tensor normalize(In x) {
  check_input("normalize", x, 0);
  const Index n = x.dim(-1), rows = x.rows();
  const Tensor w = Tensor::full({n}, 1 / std::sqrt(static_cast<double>(n)), x.dtype());
  Tensor y = Tensor::empty(x.shape(), x.dtype()), rstd = Tensor::empty({rows}, x.dtype());
  NormTensors all{.x = x->dense(), .weight = w, .y = y, .rstd = rstd};
  const Tensor factors = forward_lifted(all, 0);
  detail::with_float(x.dtype(), [&]<class T>(T) {
    for (Index r = 0; r < rows; ++r) {
      T& factor = rstd.ptr<T>()[r];
      const bool none = std::isinf(factor);
      if (!none && (n > 1 || std::isnan(factor))) continue;
      factor = 0;
      if (none)
        std::fill_n(y.ptr<T>() + r * n, n, T(0));
      else
        y.ptr<T>()[r] = std::copysign(T(1), all.x.ptr<T>()[r]);
    }
  });
  record("normalize", x.where(), y, {x}, saved(all.x, w, Tensor(), rstd, factors), norm_backward<1>);
  return y;
}

}  // namespace heed

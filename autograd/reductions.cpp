#include <heed/autograd/reductions.hpp>
#include <heed/core/parallel.hpp>

namespace heed {
namespace {

using detail::Grouped;

void check_dtype(const char* op, In x) {
  check(x.dtype() == DType::float32 || x.dtype() == DType::float64, x.where(), op, ": x is ", x.tensor(),
        "; it must be float32 or float64");
}

template <class F>
void with_type(DType dtype, F f) {
  if (dtype == DType::float64)
    f(double{});
  else
    f(float{});
}

Tensor scaled(const Tensor& x, double factor) {
  Tensor y = Tensor::empty_like(x);
  with_type(x.dtype(), [&](auto t) {
    using T = decltype(t);
    const T *from = x.ptr<T>(), by = static_cast<T>(factor);
    T* to = y.ptr<T>();
    parallel_for(x.numel(), 65536, [&](Index b, Index e) {
      for (Index i = b; i < e; ++i) to[i] = from[i] * by;
    });
  });
  return y;
}

// x's shape with 1 for each reduced axis, or without these.
Shape reduced_shape(const Shape& x, unsigned reduced, bool keepdim) {
  Shape y;
  for (int i = 0; i < x.rank(); ++i) {
    if (!(reduced >> i & 1u))
      y.push_back(x[i]);
    else if (keepdim)
      y.push_back(1);
  }
  return y;
}

// y = factor * sum(x) and dx = factor * dy, whatever element.
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

}  // namespace

Tensor sum(In x, const Axes& axes, bool keepdim) {
  check_dtype("sum", x);
  return sum_times("sum", x, axes.of("sum", x), keepdim, 1);
}

Tensor mean(In x, const Axes& axes, bool keepdim) {
  check_dtype("mean", x);
  const unsigned reduced = axes.of("mean", x);
  double n = 1;
  for (int i = 0; i < x.rank(); ++i)
    if (reduced >> i & 1u) n *= static_cast<double>(x.shape()[i]);
  return sum_times("mean", x, reduced, keepdim, 1 / n);
}

}  // namespace heed

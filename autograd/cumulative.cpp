// Running sums along an axis, and products over axes.
#include <algorithm>
#include <heed/autograd/reductions.hpp>
#include <heed/core/memory.hpp>
#include <heed/core/parallel.hpp>
#include <heed/core/reduce/reduce.hpp>

namespace heed {
namespace {

using detail::Grouped;

constexpr Index kColumns = 64;  // running sums that a task holds at once

// y = (or +=) the running sums of contiguous x along the axis; from the last to the first if `reverse`.
template <class T>
void running_sums(const T* x, T* y, const Shape& shape, int axis, bool reverse, bool accumulate) {
  const Index n = shape[axis], outer = shape.first(axis).numel(), inner = shape.last(shape.rank() - axis - 1).numel();
  const Index parts = (inner + kColumns - 1) / kColumns;
  if (n == 0 || inner == 0) return;
  parallel_for_each(outer * parts, grain_for(2 * n * std::min(inner, kColumns)), [&](Index task) {
    const Index o = task / parts, from = task % parts * kColumns, columns = std::min(kColumns, inner - from);
    double sums[kColumns] = {};
    for (Index i = 0; i < n; ++i) {
      const Index at = (o * n + (reverse ? n - 1 - i : i)) * inner + from;
      for (Index j = 0; j < columns; ++j) {
        sums[j] += static_cast<double>(x[at + j]);
        y[at + j] = static_cast<T>(accumulate ? y[at + j] + sums[j] : sums[j]);
      }
    }
  });
}

// dx[i] = dy * (product of all elements but x[i]) = dy * (product before i) * (product after i), for each product.
template <class T>
void product_backward(const Grouped& g, const T* dy, T* dx) {
  const T* x = g.x.ptr<T>();
  ThreadScratch<double> scratch(g.n);
  parallel_for_each(g.outer * g.inner, grain_for(2 * g.n), [&](Index r) {
    double* before = scratch.mine();
    const Index base = r / g.inner * g.n * g.inner + r % g.inner;
    double product = 1;
    for (Index i = 0; i < g.n; ++i) {
      before[i] = product;
      product *= static_cast<double>(x[base + i * g.inner]);
    }
    double after = static_cast<double>(dy[r]);
    for (Index i = g.n - 1; i >= 0; --i) {
      dx[base + i * g.inner] = static_cast<T>(before[i] * after);
      after *= static_cast<double>(x[base + i * g.inner]);
    }
  });
}

}  // namespace

// Backward: dx is the running sum of dy from the end.
Tensor cumsum(In x, Exactly<int> axis) {
  check(x->defined(), x.where(), "cumsum: x is undefined; it must be floating, int32 or bool8");
  if (x.rank() == 0) return cumsum(In(x->unsqueeze(0), x.where()), axis).squeeze(0);
  const int a = detail::axis_of("cumsum", x, axis);
  if (detail::is_integer(x)) {
    note_reads({x});
    return detail::cumsum_integers("cumsum", x, a);
  }
  const Tensor from = detail::widened(x).dense();
  Tensor y = Tensor::empty(x.shape(), from.dtype());
  detail::with_float(from.dtype(),
                     [&]<class T>(T) { running_sums(from.ptr<T>(), y.ptr<T>(), y.shape(), a, false, false); });
  y = detail::cast(y, x.dtype());
  record("cumsum", x.where(), y, {x}, saved(), [a](Grads& d, const Tensor& dy) {
    if (const Target to = d.dense(0)) {
      detail::with_float(dy.dtype(), [&]<class T>(T) {
        running_sums(dy.ptr<T>(), to.gradient.ptr<T>(), dy.shape(), a, true, to.accumulate);
      });
    }
  });
  return y;
}

Tensor prod(In x, const Axes& axes, bool keepdim) {
  detail::check_float("prod", x);
  const unsigned reduced = axes.of("prod", x);
  const Grouped g(x, reduced);
  Tensor values = Tensor::empty(g.result_shape(), g.x.dtype());
  detail::with_float(g.x.dtype(), [&]<class T>(T) {
    const T* from = g.x.ptr<T>();
    parallel_for_each(values.numel(), grain_for(2 * g.n), [&](Index r) {
      const Index base = r / g.inner * g.n * g.inner + r % g.inner;
      double product = 1;
      for (Index i = 0; i < g.n; ++i) product *= static_cast<double>(from[base + i * g.inner]);
      values.ptr<T>()[r] = static_cast<T>(product);
    });
  });
  Tensor y = g.to_result(values, keepdim);
  record("prod", x.where(), y, {x}, saved(x.tensor()), [reduced](Grads& d, const Tensor& dy, const Tensor& in) {
    const Grouped groups(in, reduced);
    if (!d.needs(0) || groups.x.numel() == 0) return;
    Tensor dx = Tensor::empty(groups.shape(), groups.x.dtype());
    const Tensor grouped_dy = groups.from_result(dy);
    detail::with_float(dx.dtype(), [&]<class T>(T) { product_backward<T>(groups, grouped_dy.ptr<T>(), dx.ptr<T>()); });
    d.add(0, groups.to_input(dx));
  });
  return y;
}

}  // namespace heed

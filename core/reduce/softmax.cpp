// Softmax along one axis of a tensor, split into rows or columns for the kernels.
#include <algorithm>
#include <heed/core/kernels/dispatch/dispatch.hpp>
#include <heed/core/kernels/reduce/softmax.hpp>
#include <heed/core/parallel.hpp>
#include <heed/core/reduce/reduce.hpp>

namespace heed {
namespace detail {
namespace {

constexpr Index kColumnsAtOnce = 256;  // columns per chunk

// Calls rows(offset, count, n) or columns(offset, columns) for all parts of x, seen as [outer, n, inner].
template <class Rows, class Columns>
void walk(const Tensor& x, int axis, Rows rows, Columns columns) {
  const Index n = x.shape()[axis], outer = x.shape().first(axis).numel(),
              inner = x.shape().last(x.rank() - axis - 1).numel();
  if (x.numel() == 0) return;
  if (inner == 1) return parallel_for(outer, grain_for(4 * n), [&](Index b, Index e) { rows(b * n, e - b, n); });
  const Index parts = (inner + kColumnsAtOnce - 1) / kColumnsAtOnce;
  parallel_for_each(outer * parts, grain_for(4 * n * std::min(inner, kColumnsAtOnce)), [&](Index i) {
    const Index column = i % parts * kColumnsAtOnce;
    columns(i / parts * n * inner + column,
            kernels::SoftmaxColumns{inner, n, std::min(kColumnsAtOnce, inner - column)});
  });
}

template <class F>
void with_table(DType dtype, F f) {
  with_float(dtype, [&](auto t) { f(t, kernels::of<decltype(t)>(kernels::softmax_table())); });
}

}  // namespace

void softmax(bool log, const Tensor& x, int axis, Tensor& y) {
  with_table(x.dtype(), [&]<class T>(T, const auto& table) {
    const T* from = x.ptr<T>();
    T* to = y.ptr<T>();
    walk(
        x, axis, [&](Index at, Index rows, Index n) { table.rows(log, from + at, rows, n, to + at); },
        [&](Index at, const kernels::SoftmaxColumns& of) { table.columns(log, from + at, of, to + at); });
  });
}

void softmax_backward(bool log, const Tensor& y, const Tensor& dy, int axis, Tensor& dx, bool accumulate) {
  with_table(y.dtype(), [&]<class T>(T, const auto& table) {
    const T *p = y.ptr<T>(), *g = dy.ptr<T>();
    T* to = dx.ptr<T>();
    walk(
        y, axis,
        [&](Index at, Index rows, Index n) { table.rows_backward(log, p + at, g + at, rows, n, to + at, accumulate); },
        [&](Index at, const kernels::SoftmaxColumns& of) {
          table.columns_backward(log, p + at, g + at, of, to + at, accumulate);
        });
  });
}

}  // namespace detail
}  // namespace heed

// The optimizer kernels for the dtype of a parameter, for updates of weights and sums of gradients. Private to optim.
#pragma once
#include <heed/core/kernels/dispatch/dispatch.hpp>
#include <heed/core/kernels/optimizer.hpp>
#include <heed/core/tensor.hpp>

namespace heed::detail {

// Calls f(T{}, kernels of T) with T = float or double. The dtype must be float32 or float64.
template <class F>
void with_kernels(DType dtype, F&& f) {
  with_float(dtype, [&](auto t) { f(t, kernels::of<decltype(t)>(kernels::optimizer_table())); });
}

}  // namespace heed::detail

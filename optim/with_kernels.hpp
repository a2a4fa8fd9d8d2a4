// The kernels of a parameter's type. Internal: included by sources only.
#pragma once
#include <heed/core/dtype.hpp>
#include <heed/core/kernels/optimizer.hpp>

namespace heed::detail {

// Calls f(T{}, kernels of T): float32 or float64, which are all that parameters may be.
template <class F>
void with_kernels(DType dtype, F&& f) {
  const kernels::OptimizerTable& table = kernels::optimizer_kernels();
  if (dtype == DType::float64)
    f(double{}, table.f64);
  else
    f(float{}, table.f32);
}

}  // namespace heed::detail

// What autograd/elementwise.cpp and masks.cpp share: an op's kernel, numbers beside tensors, and functions of all rows.
#pragma once
#include <heed/autograd/record.hpp>
#include <heed/core/detail/elementwise.hpp>
#include <heed/core/kernels/elementwise_ops.hpp>

namespace heed::detail {

// An op's kernel for x's dtype; Error where it has none. All floating types have one, or none.
inline kernels::ElementwiseKernel kernel_for(const char* name,
                                             const kernels::ElementwiseKernel (&list)[kernels::kElementwiseTypes],
                                             In x) {
  check(x->defined(), x.where(), name, ": x is undefined; it must have values");
  const kernels::ElementwiseKernel k = list[kernel_type(x.dtype())];
  const bool ints = list[kernels::kInt32], masks = list[kernels::kBool8];
  check(k != nullptr, x.where(), name, ": x is ", x.tensor(), "; it must be ",
        masks ? (ints ? "floating, int32 or bool8" : "bool8") : (ints ? "floating or int32" : "floating"));
  return k;
}

// A number as an operand beside x. int32 and bool8 hold theirs exactly, or it is an Error.
inline Operand number(const char* name, In x, double value) {
  check(holds(x.dtype(), value), x.where(), name, ": the tensor is ", x.tensor(), " and the number is ", value, "; ",
        x.dtype(), " must hold it exactly");
  return Operand(value, x.dtype());
}

}  // namespace heed::detail

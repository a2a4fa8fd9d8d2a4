// Shared by autograd/elementwise.cpp and masks.cpp: an op's kernel, and numbers as operands.
#pragma once
#include <heed/autograd/record.hpp>
#include <heed/core/elementwise.hpp>
#include <heed/core/kernels/elementwise/ops.hpp>

namespace heed::detail {

// The op's kernel for x's dtype. Throws Error if there is none. An op has kernels for all floating types or for none.
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

// A number as an operand with x. Throws Error if int32 or bool8 does not hold it exactly.
inline Operand number(const char* name, In x, double value) {
  check(holds(x.dtype(), value), x.where(), name, ": the tensor is ", x.tensor(), " and the number is ", value, "; ",
        x.dtype(), " must hold it exactly");
  return Operand(value, x.dtype());
}

// The shape of an op of a and b, which have values of one dtype and broadcast to each other; else throws Error.
Shape broadcast_shape(const char* name, In a, In b);

// Computes the gradient of input i by a kernel: in place, or summed over axes along which the input `broadcasts`.
void add_elementwise(Grads& d, int i, kernels::ElementwiseKernel kernel, const Tensor& dy,
                     std::initializer_list<Operand> inputs, bool broadcasts);

}  // namespace heed::detail

// What autograd/elementwise.cpp, activations.cpp and masks.cpp share: an op of one tensor from its kernel, and numbers
// beside tensors.
#pragma once
#include <heed/autograd/record.hpp>
#include <heed/core/elementwise.hpp>

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

// What the derivative of an op of one tensor is computed from.
enum class Keep { input, output, nothing };

// y = op(x; a, b), dx = the op's backward of (x or y, dy).
template <class Op>
Tensor unary(const char* name, Op op, Keep keep, In x, double a = 0, double b = 0) {
  const kernels::ElementwiseKernel forward = kernel_for(name, kernels::kernel(op).forward, x);
  Tensor y = Tensor::empty_like(x);
  elementwise(forward, y, {x.tensor()}, {a, b});
  const Tensor kept = keep == Keep::input ? x.tensor() : keep == Keep::output ? y : Tensor();
  record(name, x.where(), y, {x}, saved(kept), [op, a, b](Grads& d, const Tensor& dy, const Tensor& x_or_y) {
    if (const Target t = d.strided(0))
      elementwise(kernels::kernel(op).backward[kernel_type(dy.dtype())], t.gradient, {x_or_y, dy},
                  {a, b, t.accumulate});
  });
  return y;
}

}  // namespace heed::detail

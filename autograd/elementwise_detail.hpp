// What autograd/elementwise.cpp, activations.cpp and masks.cpp share: an op of one tensor from its kernel, and numbers
// beside tensors.
#pragma once
#include <heed/autograd/record.hpp>
#include <heed/core/elementwise.hpp>

namespace heed::detail {

// x's dtype as a row of a kernel's list; Error unless it is float32 or float64.
inline int float_type(const char* name, In x) {
  check(x->defined(), x.where(), name, ": x is undefined; it must have values");
  check(x.dtype() == DType::float32 || x.dtype() == DType::float64, x.where(), name, ": x is ", x.tensor(),
        "; it must be float32 or float64");
  return kernel_type(x.dtype());
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
  const int type = float_type(name, x);
  Tensor y = Tensor::empty_like(x);
  elementwise(kernels::kernel(op).forward[type], y, {x.tensor()}, {a, b});
  const Tensor kept = keep == Keep::input ? x.tensor() : keep == Keep::output ? y : Tensor();
  record(name, x.where(), y, {x}, saved(kept), [op, a, b](Grads& d, const Tensor& dy, const Tensor& x_or_y) {
    if (const Target t = d.strided(0))
      elementwise(kernels::kernel(op).backward[kernel_type(dy.dtype())], t.gradient, {x_or_y, dy},
                  {a, b, t.accumulate});
  });
  return y;
}

}  // namespace heed::detail

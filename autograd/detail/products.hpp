// What ops that are made of matrix products share: their types, the operands as products read them, and the gradients.
#pragma once
#include <heed/autograd/matmul.hpp>
#include <heed/core/detail/gemm.hpp>

namespace heed::detail {

// float64 by float64; else any of float32 and bfloat16.
bool multiply_together(DType a, DType b);
inline DType product_type(DType a) { return a == DType::float64 ? DType::float64 : DType::float32; }

// What the products of an op are of (Gemm::products) where its left operand is as product_operand() gave it: both are
// then read as they are, and rounded on the way. By weights of bfloat16, rows of float32 are rounded too.
inline DType products_of(DType left, DType weight) {
  const bool narrow = weight == DType::bfloat16 || (left == DType::bfloat16 && matmul_precision() == DType::bfloat16);
  return narrow ? DType::bfloat16 : DType::float32;
}

// x [..., n] as a matrix of rows(): a view where one row stride serves all rows, else a copy.
Tensor as_rows(const Tensor& x);
inline MatrixIn matrix(const Tensor& x) { return {x.raw(), x.dtype(), x.strides()[-2], x.strides()[-1]}; }

// a [m, k] b [k, n], all of rank 2; the rows of c are contiguous. Undefined c: blocks are finished in scratch.
Gemm product_of(const Tensor& a, const Tensor& b, const Tensor& c, DType products = DType::float32);

// The target's memory as a matrix of rows whose columns are contiguous, if it lies so.
Target rows_target(Grads& d, int i);

// Target (+)= a b.
void product_gradient(const Target& t, const Tensor& a, const Tensor& b, DType products = DType::float32);

}  // namespace heed::detail

// Shared by ops made of matrix products: their types, the operands as products read them, and the gradients.
#pragma once
#include <heed/autograd/matmul.hpp>
#include <heed/core/gemm/gemm.hpp>

namespace heed::detail {

// Whether products accept these types: float64 by float64, or any of float32 and bfloat16.
bool multiply_together(DType a, DType b);
// The same for x by a weight [out, in], which may also be quantized, with whole rows.
bool multiplies_weight(DType x, const Tensor& weight);
// The type of the sums.
inline DType product_type(DType a) { return a == DType::float64 ? DType::float64 : DType::float32; }

// The type in which an op multiplies (Gemm::products), where `left` is the type of its left operand from
// product_operand(). The operands are stored as they are and rounded when read. With bfloat16 weights, float32 rows are
// rounded too.
inline DType products_of(DType left, DType weight) {
  const bool narrow = weight == DType::bfloat16 || (left == DType::bfloat16 && matmul_precision() == DType::bfloat16);
  return narrow ? DType::bfloat16 : DType::float32;
}

// x [..., n] as a matrix [rows(), n]: a view if one stride serves all rows, else a copy.
Tensor as_rows(const Tensor& x);
inline MatrixIn matrix(const Tensor& x) { return {x.memory(), x.dtype(), x.strides()[-2], x.strides()[-1]}; }

// The product c = a b of a [m, k] and b [k, n]. Rows of c are contiguous. If c is undefined, blocks are finished in
// scratch.
Gemm product_of(const Tensor& a, const Tensor& b, const Tensor& c, DType products = DType::float32);

// The contiguous target of input i as a matrix of rows; undefined if it is not needed.
Target rows_target(Grads& d, int i);

// Target (+)= a b.
void product_gradient(const Target& t, const Tensor& a, const Tensor& b, DType products = DType::float32);

}  // namespace heed::detail

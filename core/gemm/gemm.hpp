// Matrix products on pointers: C = alpha * A B (+ C) + bias.
#pragma once
#include <array>
#include <concepts>
#include <heed/core/dtype.hpp>
#include <heed/core/tensor.hpp>
#include <tuple>

namespace heed {

// An operand. Element (i, j) is data[i * row + j * column]. Strides are in elements, of any size and sign, so that
// transposes and views need no copy.
struct MatrixIn {
  const void* data = nullptr;
  DType dtype = DType::float32;
  Index row = 0, column = 1;
};

// A finished block of a result: its first element, and its rows and columns in the result.
struct GemmBlock {
  void* c;
  Index ldc;
  Index row, rows, column, columns;
};

// Blocks of a product with a GemmFinish begin at multiples of this number of rows on every level. It is a multiple of
// the rows of every level's tile. A sum over rows has the same bits on every level if it adds sums of this many rows.
inline constexpr Index kFinishRows = 48;

// A function that is called once for each block of a result, by the thread that computed the block, while the block is
// in the nearest caches. The rows and columns of a block differ between levels.
class GemmFinish {
 public:
  static constexpr int kMaxOperands = 3;

  GemmFinish() = default;
  // f must exist until the product is done. `operands` are matrices of the result's size in which f reads or writes the
  // place of the block; this place is prefetched while the block is computed. They have column stride 1; data may be
  // null.
  template <class F>
  requires std::invocable<const F&, const GemmBlock&> GemmFinish(
      const F& f, const std::array<MatrixIn, kMaxOperands>& operands = {})
      : f_(&f),
        call_([](const void* g, const GemmBlock& block) { (*static_cast<const F*>(g))(block); }),
        operands_(operands) {}
  explicit operator bool() const { return call_ != nullptr; }
  void operator()(const GemmBlock& block) const { call_(f_, block); }
  const std::array<MatrixIn, kMaxOperands>& operands() const { return operands_; }

 private:
  const void* f_ = nullptr;
  void (*call_)(const void* f, const GemmBlock& block) = nullptr;
  std::array<MatrixIn, kMaxOperands> operands_ = {};
};

// A product C = alpha * A B (+ C) + bias, or a batch of products.
struct Gemm {
  Index m = 0, n = 0, k = 0;  // any may be 0; k = 0 gives an empty sum
  MatrixIn a = {};            // [m, k], float32, bfloat16 or float64
  // [k, n], float64 if a is, else float32, bfloat16 or quantized. A quantized b begins with a block, has stride 1 along
  // its blocks and a multiple of 32 along the other axis, and is the same for all products of a batch.
  MatrixIn b = {};
  // bfloat16: operands of float32 and quantized ones are rounded to bfloat16 as they are read. Both operands then hold
  // bfloat16 values and are multiplied as such.
  DType products = DType::float32;
  void* c = nullptr;  // [m, n], float64 if a is, else float32; each row is contiguous
  Index ldc = 0;      // stride of the rows of c, in elements
  double alpha = 1;
  bool accumulate = false;     // adds to the values of c
  const void* bias = nullptr;  // [n], of c's dtype, or null

  // Two batch axes of `count` products. a, b and c are the strides of the operands, in elements. The bias is shared.
  struct Axis {
    Index count = 1, a = 0, b = 0, c = 0;
  };
  Axis batch[2] = {};

  // Only for a product without batch. c may then be null: a block exists in scratch, while `finish` runs on it.
  GemmFinish finish = {};
};

// Computes the product in parallel over parts of c. The sizes of the parts depend on shapes and strides alone, so the
// bits of the result are the same at any number of threads. If both operands hold bfloat16 values, they are multiplied
// in pairs and summed in float32, and subnormals, also those of c, count as 0. Otherwise bfloat16 is widened to
// float32. A quantized b is unpacked to float32 as it is read. c must not overlap a or b. Throws Error for dtypes that
// do not fit, and for a `finish` with a batch.
void gemm(const Gemm& g);
// gemm() on the calling thread, with the same bits, for callers that run many products in parallel.
void gemm_here(const Gemm& g);

namespace kernels {
struct GemmKind;
}

// The right operand of many products, packed once. The bits of row i of a product depend on row i of the left operand
// alone, and not on other rows.
class PackedMatrix {
 public:
  PackedMatrix() = default;
  // Packs a copy of b [k, n] for left operands of dtype `a`. See Gemm for the dtypes.
  PackedMatrix(const MatrixIn& b, Index k, Index n, DType a, DType products = DType::float32);
  explicit operator bool() const { return kind_ != nullptr; }

  // c = alpha * a b (+ c) + bias with the packed b; g's b, n, k, products and batch are not read. multiply() runs in
  // parallel, multiply_here() on the calling thread. Throw Error if g.a has another dtype than the matrix was packed
  // for.
  void multiply(const Gemm& g) const;
  void multiply_here(const Gemm& g) const;

  auto tensors() { return std::tie(packed_); }

 private:
  const kernels::GemmKind* kind_ = nullptr;
  Index k_ = 0, n_ = 0;
  DType a_ = DType::float32, b_ = DType::float32, products_ = DType::float32;
  Tensor packed_;

  Gemm whole(const Gemm& g) const;
};

// The number of rows in a tile of registers. Work is best split into multiples of this.
Index gemm_row_step(DType type);

}  // namespace heed

// Matrix products on pointers, the base of every linear map: C = alpha * A B (+ C) + bias.
#pragma once
#include <array>
#include <concepts>
#include <heed/core/dtype.hpp>
#include <heed/core/tensor.hpp>
#include <tuple>

namespace heed {

// Element (i, j) is data[i * row + j * column]: strides in elements, of any size and sign, so that transposes and
// views need no copy.
struct MatrixIn {
  const void* data = nullptr;
  DType dtype = DType::float32;
  Index row = 0, column = 1;
};

// A part of a result that is computed: its first element, and where in the result that stands.
struct GemmBlock {
  void* c;
  Index ldc;
  Index row, rows, column, columns;
};

// Blocks of a product that has a GemmFinish begin at multiples of so many rows, on every level: whole tiles of each. A
// sum over rows has the same bits on every level if it is made of parts of so many rows.
inline constexpr Index kFinishRows = 48;

// What becomes of each block of a result: called once it is computed, by the thread that did, while the block is in the
// nearest caches. How many rows and columns a block has differs between levels.
class GemmFinish {
 public:
  static constexpr int kMaxBeside = 3;

  GemmFinish() = default;
  // f must live as long as the product runs. What it reads or writes at the block's place of these matrices, as large
  // as the result, comes to the cache while the block is computed; their columns are runs, data may be null.
  template <class F>
  requires std::invocable<const F&, const GemmBlock&> GemmFinish(const F& f,
                                                                 const std::array<MatrixIn, kMaxBeside>& beside = {})
      : f_(&f),
        call_([](const void* g, const GemmBlock& block) { (*static_cast<const F*>(g))(block); }),
        beside_(beside) {}
  explicit operator bool() const { return call_ != nullptr; }
  void operator()(const GemmBlock& block) const { call_(f_, block); }
  const std::array<MatrixIn, kMaxBeside>& beside() const { return beside_; }

 private:
  const void* f_ = nullptr;
  void (*call_)(const void* f, const GemmBlock& block) = nullptr;
  std::array<MatrixIn, kMaxBeside> beside_ = {};
};

struct Gemm {
  Index m = 0, n = 0, k = 0;  // any may be 0; k = 0 gives an empty sum
  MatrixIn a = {};            // [m, k], float32, bfloat16 or float64
  MatrixIn b = {};            // [k, n], float32 or bfloat16 as it likes, float64 where a is
  // bfloat16: float32 operands are rounded to it as they are read. Values of both operands are then bfloat16, and
  // multiplied as such.
  DType products = DType::float32;
  void* c = nullptr;  // [m, n], float64 where a is, else float32; rows contiguous, `ldc` elements apart
  Index ldc = 0;
  double alpha = 1;
  bool accumulate = false;     // adds to what c holds
  const void* bias = nullptr;  // [n], of c's type, or null

  // Two batch axes: `count` products whose operands are so many elements apart. The bias is shared.
  struct Axis {
    Index count = 1, a = 0, b = 0, c = 0;
  };
  Axis batch[2] = {};

  // Of a product without batch. c may then be null: blocks exist in scratch, while they are finished.
  GemmFinish finish = {};
};

// Runs in parallel over parts of c, whose sizes depend on shapes alone: the bits of the result are the same at any
// number of threads. Two operands of bfloat16 values are multiplied in pairs and summed in float32, where subnormals
// count as 0, those of c, too; otherwise bfloat16 is widened to float32. c must not overlap a or b. Throws Error for
// types that do not go together.
void gemm(const Gemm& g);
// The same on this thread, to the bit: for who computes many at once.
void gemm_here(const Gemm& g);

namespace kernels {
struct GemmKind;
}

// The right operand of many products, packed once. Row i of a product is a function of row i of its left operand alone,
// whatever other rows there are: to the bit.
class PackedMatrix {
 public:
  PackedMatrix() = default;
  // b [k, n], for left operands of dtype `a`: see Gemm. What b holds is copied.
  PackedMatrix(const MatrixIn& b, Index k, Index n, DType a, DType products = DType::float32);
  explicit operator bool() const { return kind_ != nullptr; }

  // c = alpha * a b (+ c) + bias of g, whose b, n, k, products and batch are not read: in parallel, or on this thread.
  void multiply(const Gemm& g) const;
  void multiply_here(const Gemm& g) const;
  Index columns() const { return n_; }

  auto tensors() { return std::tie(packed_); }

 private:
  const kernels::GemmKind* kind_ = nullptr;
  Index k_ = 0, n_ = 0;
  DType a_ = DType::float32, b_ = DType::float32, products_ = DType::float32;
  Tensor packed_;

  Gemm whole(const Gemm& g) const;
};

// The fewest rows that fill the registers of a product: work is best cut into multiples of it.
Index gemm_row_step(DType type);

}  // namespace heed

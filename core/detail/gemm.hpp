// Matrix products on pointers, the base of every linear map: C = alpha * A B (+ C) + bias.
#pragma once
#include <heed/core/dtype.hpp>

namespace heed {

// Element (i, j) is data[i * row + j * column]: strides in elements, of any size and sign, so that transposes and
// views need no copy.
struct MatrixIn {
  const void* data = nullptr;
  DType dtype = DType::float32;
  Index row = 0, column = 1;
};

struct Gemm {
  Index m = 0, n = 0, k = 0;  // any may be 0; k = 0 gives an empty sum
  MatrixIn a = {};            // [m, k], float32, bfloat16 or float64
  MatrixIn b = {};            // [k, n], float32 or bfloat16 as it likes, float64 where a is
  void* c = nullptr;          // [m, n], float64 where a is, else float32; rows contiguous, `ldc` elements apart
  Index ldc = 0;
  double alpha = 1;
  bool accumulate = false;     // adds to what c holds
  const void* bias = nullptr;  // [n], of c's type, or null

  // Two batch axes: `count` products whose operands are so many elements apart. The bias is shared.
  struct Axis {
    Index count = 1, a = 0, b = 0, c = 0;
  };
  Axis batch[2] = {};
};

// Runs in parallel over parts of c, whose sizes depend on shapes alone: the bits of the result are the same at any
// number of threads. Two bfloat16 operands are multiplied as such where the machine can (sums in float32; it takes
// subnormals for 0); otherwise bfloat16 is widened to float32. c must not overlap a or b. Throws Error for types that
// do not go together.
void gemm(const Gemm& g);

}  // namespace heed

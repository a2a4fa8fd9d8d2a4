// Elementwise kernels: out[i] = f(in[0][i], in[1][i], ...) on runs of memory, and their derivatives.
//
//   kernels::unary<"sin">().forward[kFloat32](y, &x, step, n, {});
//
// An op is a row of ops.hpp: its name, its formula and its derivatives. The kernels of every level, the
// tables below and the index of a name are generated from these rows.
#pragma once
#include <stddef.h>
#include <stdint.h>

namespace heed::kernels {

struct ElementwiseOptions {
  double a = 0, b = 0;      // the op's constants: slope, limits, exponent
  bool accumulate = false;  // out += f(...) (kernels of float32 and float64)
};

// Computes one run of n elements. in[k] advances by step[k], 1 or 0; kernels of one input take 1 only. out may be one
// of the inputs, but may not overlap them otherwise.
using ElementwiseKernel = void (*)(void* out, const void* const* in, const unsigned char* step, ptrdiff_t n,
                                   const ElementwiseOptions& options);

// Element types, the index into the kernels of an op. A null kernel: the op does not support the type.
enum ElementwiseType { kFloat32, kFloat64, kInt32, kBool8, kElementwiseTypes };

struct UnaryKernel {
  const char* name;
  ElementwiseKernel forward[kElementwiseTypes];  // y = f(x)
  // dx from (x, dy) or (y, dy), by reads_x and reads_y; if neither is set, the first is ignored
  ElementwiseKernel backward[2];
  bool reads_x, reads_y;
};

// The derivative of y = f(a, b) with respect to a or to b.
struct BinaryDerivative {
  ElementwiseKernel kernel[2];  // from (a, b, dy)
  bool reads_a, reads_b;
  bool is_dy;  // the derivative is dy itself
};
struct BinaryKernel {
  const char* name;
  ElementwiseKernel forward[kElementwiseTypes];  // y = f(a, b)
  BinaryDerivative da, db;
};

// bool8 from two numbers or masks (comparison) or from one (test); a or b from (mask, a, b) (choice).
struct MaskKernel {
  const char* name;
  ElementwiseKernel forward[kElementwiseTypes];
};

// Converts runs between float32 and bfloat16. Rounds to the nearest, ties to even.
struct Bf16Kernels {
  void (*round)(uint16_t* to, const float* from, ptrdiff_t n);
  void (*widen)(float* to, const uint16_t* from, ptrdiff_t n);
};

struct ElementwiseTable {  // one kernel per row
  const UnaryKernel* unary;
  const BinaryKernel* binary;
  const MaskKernel *comparison, *test, *choice;
  Bf16Kernels bf16;
};

const ElementwiseTable& elementwise_table();  // for the level in use

}  // namespace heed::kernels

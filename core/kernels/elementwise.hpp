// Elementwise kernels: out[i] = f(in[0][i], in[1][i], ...) on runs of memory, and their derivatives.
#pragma once
#include <stddef.h>

namespace heed::kernels {

struct ElementwiseOptions {
  double a = 0, b = 0;      // an op's constants: slope, limits, exponent
  bool accumulate = false;  // out += f(...) (kernels of float32 and float64)
};

// One run of n elements. in[k] advances by step[k], 1 or 0; kernels of one input take 1 only.
// out may be one of the inputs, but may not overlap them otherwise.
using ElementwiseKernel = void (*)(void* out, const void* const* in, const unsigned char* step, ptrdiff_t n,
                                   const ElementwiseOptions& options);

// The element types, by which the kernels of an op are listed; null where an op has no kernel for a type.
enum ElementwiseType { kFloat32, kFloat64, kInt32, kBool8, kElementwiseTypes };

struct UnaryKernel {
  ElementwiseKernel forward[kElementwiseTypes];  // y = f(x)
  ElementwiseKernel backward[2];                 // dx from (x, dy), or from (y, dy) for those ops whose output says it all
};
struct BinaryKernel {
  ElementwiseKernel forward[kElementwiseTypes];  // y = f(a, b)
  ElementwiseKernel backward_a[2];               // da from (a, b, dy)
  ElementwiseKernel backward_b[2];               // db from (a, b, dy)
};
struct MaskKernel {
  ElementwiseKernel forward[kElementwiseTypes];
};

enum class Unary { neg, abs, sign, square, sqrt, rsqrt, exp, expm1, log, log1p, sin, cos, erf, pow, clamp, count };
enum class ActivationKind { sigmoid, tanh, relu, leaky_relu, elu, gelu, gelu_tanh, silu, softplus, count };
enum class Binary { add, sub, mul, div, maximum, minimum, pow, count };
// bool8 from two numbers (eq to ge), from two masks (logical_*), from one number (isnan, isfinite); of the type of a
// and b from (mask, a, b): a, or 0, where the mask is set and b, or 0, elsewhere (where, where_a, where_b).
enum class Masking {
  eq,
  ne,
  lt,
  le,
  gt,
  ge,
  logical_and,
  logical_or,
  logical_xor,
  logical_not,
  isnan,
  isfinite,
  where,
  where_a,
  where_b,
  count
};

struct UnaryTable {
  UnaryKernel op[static_cast<int>(Unary::count)];
};
struct ActivationTable {
  UnaryKernel op[static_cast<int>(ActivationKind::count)];
};
struct BinaryTable {
  BinaryKernel op[static_cast<int>(Binary::count)];
};
struct MaskingTable {
  MaskKernel op[static_cast<int>(Masking::count)];
};

const UnaryTable& unary_table();  // of the level that runs
const ActivationTable& activation_table();
const BinaryTable& binary_table();
const MaskingTable& masking_table();

inline const UnaryKernel& kernel(Unary op) { return unary_table().op[static_cast<int>(op)]; }
inline const UnaryKernel& kernel(ActivationKind op) { return activation_table().op[static_cast<int>(op)]; }
inline const BinaryKernel& kernel(Binary op) { return binary_table().op[static_cast<int>(op)]; }
inline const MaskKernel& kernel(Masking op) { return masking_table().op[static_cast<int>(op)]; }

}  // namespace heed::kernels

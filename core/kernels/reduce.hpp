// Reductions of contiguous rows, by rows and by columns. Sums are trees whose shape depends on the sizes alone.
#pragma once
#include <stdint.h>

#include "dispatch.hpp"

namespace heed::kernels {

// What is reduced; c is the row's or the column's center. The sums of those before max are added up.
enum class Reduction {
  sum,
  abs,         // |x|
  square,      // x^2
  difference,  // x - c
  deviation,   // (x - c)^2
  exp,         // e^(x - c)
  equal,       // 1 where x is c or NaN
  max,         // NaN where an x is
  min,
  max_abs,
};

// The derivative that goes back to every x: a * (x - c - rest), a * e^(x - c), a * sign(x), a where x is c or NaN.
enum class Spread { deviation, exp, sign, equal };

template <class T>
struct ReduceKernels {
  // y[r] of x[r * stride + (0 .. n - 1)], where n > 0 for max, min and max_abs.
  void (*rows)(Reduction op, const T* x, int64_t stride, int64_t rows, int64_t n, const T* center, T* y);
  // y[j] of x[(0 .. rows - 1) * stride + j], where rows > 0.
  void (*columns)(Reduction op, const T* x, int64_t stride, int64_t rows, int64_t columns, const T* center, T* y);
  // The first place where x is `value` or NaN, in each row; in each column. There must be one.
  void (*find_rows)(const T* x, int64_t rows, int64_t n, const T* value, int32_t* place);
  void (*find_columns)(const T* x, int64_t rows, int64_t columns, const T* value, int32_t* place);
  // dx[r][j] = (or +=, if accumulate) a * f(x[r][j], c, rest), all of row r in the one, of column j in the other;
  // center and rest are null where they are 0, and only deviation has a rest.
  void (*spread_rows)(Spread op, const T* x, int64_t rows, int64_t n, const T* center, const T* rest, const T* a, T* dx,
                      bool accumulate);
  void (*spread_columns)(Spread op, const T* x, int64_t rows, int64_t columns, const T* center, const T* rest,
                         const T* a, T* dx, bool accumulate);
};

using ReduceTable = FloatTable<ReduceKernels>;
const ReduceTable& reduce_table();  // of the level that runs

}  // namespace heed::kernels

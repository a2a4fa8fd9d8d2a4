// Reductions of contiguous rows, by rows and by columns. Sums are trees whose shape depends only on the sizes.
#pragma once
#include <stdint.h>

#include "../dispatch/dispatch.hpp"

namespace heed::kernels {

// The reduced function of x; c is the center of the row or the column. All functions before `max` are summed.
enum class Reduction {
  sum,
  abs,         // |x|
  square,      // x^2
  difference,  // x - c
  deviation,   // (x - c)^2
  exp,         // e^(x - c)
  equal,       // 1 if x is c or NaN, else 0
  max,         // NaN if any x is NaN; so are the next two
  min,
  max_abs,
};

// The derivative by each x: a * (x - c - rest), a * e^(x - c), a * sign(x), or a if x is c or NaN (else 0).
enum class Spread { deviation, exp, sign, equal };

// The numbers of a Spread, per row or per column.
template <class T>
struct SpreadFactors {
  const T* center;  // c; null: 0
  const T* rest;    // of deviation; null: 0
  const T* a;
};

template <class T>
struct ReduceKernels {
  // y[r] from x[r * stride + (0 .. n - 1)]; n > 0 for max, min and max_abs.
  void (*rows)(Reduction op, const T* x, int64_t stride, int64_t rows, int64_t n, const T* center, T* y);
  // y[j] from x[(0 .. rows - 1) * stride + j]; rows > 0.
  void (*columns)(Reduction op, const T* x, int64_t stride, int64_t rows, int64_t columns, const T* center, T* y);
  // The first place where x is `value` or NaN, in each row or each column. There must be one.
  void (*find_rows)(const T* x, int64_t rows, int64_t n, const T* value, int32_t* place);
  void (*find_columns)(const T* x, int64_t rows, int64_t columns, const T* value, int32_t* place);
  // dx[r][j] = (or +=, if accumulate) a * f(x[r][j], c, rest). In spread_rows, a, c and rest are given per row, in
  // spread_columns per column.
  void (*spread_rows)(Spread op, const T* x, int64_t rows, int64_t n, SpreadFactors<T> by, T* dx, bool accumulate);
  void (*spread_columns)(Spread op, const T* x, int64_t rows, int64_t columns, SpreadFactors<T> by, T* dx,
                         bool accumulate);
};

using ReduceTable = FloatTable<ReduceKernels>;
const ReduceTable& reduce_table();  // for the level in use

}  // namespace heed::kernels

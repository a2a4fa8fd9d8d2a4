// heed's own functions of scores, as kernels: see core/kernel_interface.hpp and autograd/flex_attention.hpp. x is the
// score and d = key - query.
//
//   distance   f(x) = x + bias(h, d)        parameters: {slopes [H]}: bias = -slope_h |d|; or a table, below
//   soft_cap   f(x) = c tanh(x / c)         parameters: {c [1] or [H]}
//     f' = 1 - t^2 with t = tanh(x / c)     df / dc = t - x / c (1 - t^2)
//   forget     f(x) = x + c_last - c_key    parameters: {c [B, H, S]}, or none
//     c is a running sum of log gates, and `last` is the last key that the query may attend to: ForgetGates, below
#pragma once
#include "../../kernel_interface.hpp"
#include "../dispatch/dispatch.hpp"

namespace heed::kernels {

// The context of `distance`. The parameter is a table [H or 1, entries]. The bias of distance d is its entry map[n],
// with n = clip + min(max(d, -clip), clip), or its entry n if there is no map.
struct DistanceTable {
  int64_t clip;        // -1: slopes
  const int32_t* map;  // [2 clip + 1]; or null
};

// The context of `forget`. c = whole + part, two running sums: of the integers nearest to the log gates, which is
// exact, and of the rest, which is small. So the difference of two c is exact to float64 after any number of closing
// gates. The parameter c, if any, is not read; it only receives the gradient.
struct ForgetGates {
  int64_t heads, queries, keys;
  const double *whole, *part;            // [batch, heads, keys]
  const double *row_whole, *row_part;    // [batch, heads, queries]: c of the last key that the query may attend to
  const int32_t* start;                  // [batch, heads, queries]: a gate of 0 hides the keys before this one
};

template <class T>
struct ScoreFunctions {
  ScoreFunction<T> distance, soft_cap, forget;
};

using ScoreFunctionTable = FloatTable<ScoreFunctions>;
const ScoreFunctionTable& score_function_table();  // for the level in use

}  // namespace heed::kernels

// Functions of scores that are heed's own, as kernels: see core/kernel_interface.hpp and autograd/flex_attention.hpp. x
// is the score, d = key - query.
//
//   distance   f(x) = x + bias(h, d)        parameters: {slopes [H]}: bias = -slope_h |d|; or a table, below
//   soft_cap   f(x) = c tanh(x / c)         parameters: {c [1] or [H]}
//     f' = 1 - t^2 with t = tanh(x / c)     df / dc = t - x / c (1 - t^2)
//   forget     f(x) = x + c_last - c_key    parameters: {c [B, H, S]}, or none
//     c is a running sum of log gates, and `last` the last key that the query may see: ForgetGates, below
#pragma once
#include "../kernel_interface.hpp"
#include "dispatch.hpp"

namespace heed::kernels {

// What the context of `distance` points to. The parameter is a table [H or 1, entries], and the bias of distance d its
// entry map[clip + min(max(d, -clip), clip)], or that number itself where there is no map.
struct DistanceTable {
  int64_t clip;        // -1: slopes
  const int32_t* map;  // [2 clip + 1]; or null
};

// What the context of `forget` points to. c = whole + part, two running sums: the whole numbers that are nearest to the
// log gates, whose sums are exact, and the rest, whose sums are small. So the difference of two c is exact to float64
// after any number of gates that close. The parameter c, if any, is read by nothing: it only receives the gradient.
struct ForgetGates {
  int64_t heads, queries, keys;
  const double *whole, *part;            // [batch, heads, keys]
  const double *row_whole, *row_part;    // [batch, heads, queries]: c of the last key that the query may see
  const int32_t* start;                  // [batch, heads, queries]: a gate of 0 hides the keys before this one
};

template <class T>
struct ScoreFunctions {
  ScoreFunction<T> distance, soft_cap, forget;
};

using ScoreFunctionTable = FloatTable<ScoreFunctions>;
const ScoreFunctionTable& score_functions();  // of the level that runs

}  // namespace heed::kernels

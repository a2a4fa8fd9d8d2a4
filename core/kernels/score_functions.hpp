// Functions of scores that are heed's own, as kernels: see core/kernel_interface.hpp and autograd/flex_attention.hpp. x
// is the score, d = key - query.
//
//   distance   f(x) = x + bias(h, d)        parameters: {slopes [H]}: bias = -slope_h |d|; or a table, below
//   soft_cap   f(x) = c tanh(x / c)         parameters: {c [1] or [H]}
//     f' = 1 - t^2 with t = tanh(x / c)     df / dc = t - x / c (1 - t^2)
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

template <class T>
struct ScoreFunctions {
  ScoreFunction<T> distance, soft_cap;
};

using ScoreFunctionTable = FloatTable<ScoreFunctions>;
const ScoreFunctionTable& score_functions();  // of the level that runs

}  // namespace heed::kernels

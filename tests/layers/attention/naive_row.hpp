// References for the conformance kit: attention in plain loops in float64, from the weights of one query at a time.
#pragma once
#include <cmath>
#include <functional>
#include <heed/layers/attention/conformance.hpp>
#include <heed/layers/model_config.hpp>
#include <vector>

#include "tests/support.hpp"

namespace heed::test {

// The checks that a build with a sanitizer runs for each correct mechanism: those with padding, views, empty tensors,
// odd sizes and states. The others repeat the same calls with other values. "conformance: softmax attention passes all
// that it declares" runs every check in each build.
inline ConformanceOptions thinned(ConformanceOptions options) {
  options.longest = thinned<Index>(1000, 24);
  if (kSanitized)
    options.only = {"padding",      "empty rows",    "cross lengths", "borders",     "grouped", "views",
                    "batch",        "empty tensors", "calls",         "mapped keys", "state",   "state rows",
                    "ragged state", "state resumed", "float32",       "bfloat16"};
  return options;
}

// One query, its keys, and the options and parameters of the mechanism.
struct NaiveRow {
  Index head, position, keys, size;  // position: P = i + S - T
  bool causal;
  const double* q;              // [size]
  const double* k;              // [keys, size]
  std::vector<Index> seen;      // keys visible to the query
  std::vector<double> bias;     // [keys]: added to scores; mechanisms with features multiply weights by e^bias
  const TensorsByName& values;   // the mechanism's parameters and buffers
  const MechanismOptions& own;   // options of the mechanism
  Index key_head = 0;            // b * Hk + h: index into inputs [B, Hk, S, size]
  std::vector<bool> padding = {};  // [keys]: true for keys hidden by lengths or the key mask
  mutable std::vector<const double*> value_vectors = {};  // one per key of `seen`, added to its value; empty: none
  mutable bool replaces_values = false;                   // value_vectors replace the values
  Index query_row = 0;                                    // (b * H + h) * T + i: index into inputs [B, H, T, size]

  double dot(Index j) const {
    double s = 0;
    for (Index c = 0; c < size; ++c) s += q[c] * k[j * size + c];
    return s;
  }
  double scaled(Index j) const { return dot(j) / std::sqrt(static_cast<double>(size)); }
  double added(Index j) const { return bias[static_cast<std::size_t>(j)]; }
  double factor(Index j) const { return added(j) == 0 ? 1 : std::exp(added(j)); }
  const double* array(const char* name) const { return values.at(name).ptr<double>(); }  // contiguous
  Index count(const char* name, int axis) const { return values.at(name).dim(axis); }
};

using NaiveWeights = std::vector<double>;  // one per key of row.seen

// Makes a ConformanceOptions::reference. weights(row) returns the weights of one query; rows have `own` as their
// options.
decltype(ConformanceOptions::reference) naive_by(std::function<NaiveWeights(const NaiveRow&)> weights,
                                                 const MechanismOptions& own = {});

}  // namespace heed::test

// References for the conformance kit: the mechanisms of layers/model_config.hpp term by term, in float64, by their
// definitions.
#pragma once
#include <heed/layers/model_config.hpp>
#include <string>

#include "tests/layers/attention/naive_row.hpp"

namespace heed::test {

// The ConformanceOptions::reference of the named mechanism with these options.
decltype(ConformanceOptions::reference) naive_mechanism(const std::string& name, const MechanismOptions& options);

// Mechanisms whose values are not those of the call alone: they depend on the distance from the query, some are inputs,
// or a map or a norm follows. Checks that mix the columns of values, or read weights from values, do not apply.
bool has_other_values(const std::string& name);

// The name of a feature map, as feature_map() takes it.
std::string name_of(FeatureMap map);

// Softmax of the scaled score over the visible keys with sees(j).
NaiveWeights pattern_of(const NaiveRow& row, const std::function<bool(Index)>& sees);

// Softmax with tables of vectors [2 clip + 1, size] by distance, of which either may be undefined.
NaiveWeights naive_relative_weights(const NaiveRow& row, const Tensor& keys, const Tensor& values);

// Sine and cosine of each distance from -clip to clip: [2 clip + 1, size].
const Tensor& naive_sinusoids(Index clip, Index size);

// The weights of all heads together, for one query of one sequence.
Tensor naive_talking_heads(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionCall& call,
                           const TensorsByName& values);

}  // namespace heed::test

// Linear attention (Katharopoulos et al., "Transformers are RNNs: fast autoregressive Transformers with linear
// attention", 2020), as a mechanism: weights f(q) . f(k), normalised. Time and memory grow with the length, and
// decoding keeps sums of one size. Formulas and derivative: core/kernels/linear_attention.hpp.
#pragma once
#include <heed/autograd/linear_attention.hpp>
#include <heed/layers/attention/mechanism.hpp>
#include <heed/layers/attention/states/linear_state.hpp>
#include <string_view>

namespace heed {

// "elu", "relu", "softplus", "exp", "poly2" or "identity"; Error for another name.
FeatureMap feature_map(std::string_view name);
std::string_view name_of(FeatureMap map);

namespace detail {
// Of linear attention and its relatives that can be causal. Features that are known by their logarithms share maxima.
inline AttentionCapabilities linear_capabilities(bool logarithms = false) {
  return {.causal = true,
          .key_mask = true,
          .key_bias = true,
          .weights = true,
          .state = true,
          .cross = true,
          .grouped = true,
          .shared_maximum = logarithms,
          .why = "the weights of single pairs are never there"};
}
}  // namespace detail

struct LinearAttention {
  LinearFeatures features = {};  // LinearAttention{{.feature_map = FeatureMap::relu}}

  std::string name() const { return "linear"; }
  AttentionCapabilities capabilities() const {
    return detail::linear_capabilities(features.feature_map == FeatureMap::exp);
  }
  double keys_per_query(Index, Index size) const {
    return static_cast<double>(features.feature_map == FeatureMap::poly2 ? size * (size + 1) / 2 : size);
  }
  Tensor apply(In q, In k, In v, const AttentionCall& call) const { return linear_attention(q, k, v, call, features); }
  AttentionState make_state() const;
  void members(auto&&) {}
};

}  // namespace heed

// Linear attention (Katharopoulos et al., "Transformers are RNNs: fast autoregressive Transformers with linear
// attention", 2020), as a mechanism: weights f(q) . f(k), normalised. Time and memory grow with the length, and
// decoding keeps sums of one size. Formulas and derivative: core/kernels/linear_attention.hpp.
#pragma once
#include <heed/autograd/linear_attention.hpp>
#include <heed/layers/attention/mechanism.hpp>
#include <string_view>

namespace heed {

// "elu", "relu", "softplus", "exp", "poly2" or "identity"; Error for another name.
FeatureMap feature_map(std::string_view name);
std::string_view name_of(FeatureMap map);

// The decode state of linear attention and its relatives: the sums over all keys and values so far.
class LinearAttentionState {
 public:
  using Step = std::function<Tensor(In q, In k, In v, LinearAttentionSums& sums)>;

  explicit LinearAttentionState(Step step) : step_(std::move(step)) {}
  Tensor apply(In q, In k, In v);  // goes on with [B, Hk, T, D], causally: [B, H, T, Dv]
  Index length() const { return static_cast<Index>(length_.item()); }
  void members(auto&& visit) {
    visit.buffer("length", length_);
    visit.buffer("sums", sums_.sums);
    visit.buffer("norms", sums_.norms);
    visit.buffer("maxima", sums_.maxima);
  }

 private:
  Step step_;
  LinearAttentionSums sums_;
  Tensor length_ = Tensor::zeros({}, DType::int32);
};

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

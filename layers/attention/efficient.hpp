// Efficient attention (Shen et al., "Efficient attention: attention with linear complexities", 2018; A2-Nets, Chen et
// al. 2018): softmax_d(Q) (softmax_n(K)^T V), the softmax of queries over their features and of keys over the
// positions. Formulas and derivative: core/kernels/log_attention.hpp.
#pragma once
#include <heed/layers/attention/linear.hpp>

namespace heed {

struct EfficientAttention {
  std::string name() const { return "efficient"; }
  AttentionCapabilities capabilities() const {
    return {.key_mask = true,
            .key_bias = true,
            .weights = true,
            .cross = true,
            .grouped = true,
            .why = "the softmax of the keys goes over all positions"};
  }
  double keys_per_query(Index, Index size) const { return static_cast<double>(size); }
  Tensor apply(In q, In k, In v, const AttentionCall& call) const {
    return efficient_attention(q, k, v, call);
  }
  void members(auto&&) {}
};

// The same with the softmax of the keys over the positions so far: row i is what EfficientAttention gives for the keys
// j <= i.
struct CausalEfficientAttention {
  std::string name() const { return "efficient"; }
  AttentionCapabilities capabilities() const { return detail::linear_capabilities(true); }
  double keys_per_query(Index, Index size) const { return static_cast<double>(size); }
  Tensor apply(In q, In k, In v, const AttentionCall& call) const {
    return efficient_attention(q, k, v, call);
  }
  AttentionState make_state() const {
    return LinearAttentionState(
        [](In q, In k, In v, LinearAttentionSums& sums, const AttentionCall& call) {
          return efficient_attention_step(q, k, v, sums, call);
        });
  }
  void members(auto&&) {}
};

}  // namespace heed

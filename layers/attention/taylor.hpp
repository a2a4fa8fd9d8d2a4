// First-order Taylor attention (Li et al., "Linear attention mechanism: an efficient attention for semantic
// segmentation", 2020): the exponential of the cosine is replaced by the first two terms of its series,
//
//   weight of j: 1 + (q_i / |q_i|) . (k_j / |k_j|), normalised
//
// (proposed likewise by Su Jianlin, "Exploring linear attention", a blog post of 2020). Without the terms that follow
// no weight is more than twice the average: it cannot look at a single key as softmax can. It is never negative, and is
// linear attention with the features [1; x / |x|]: O(n D^2). The cosine's rounding, 1e-7 in float32, is a large share
// of a weight of nearly opposite vectors, and of a row where all are. A vector of zeros has the cosine 0 with all, and
// no gradient: dx = (dn - n (n . dn)) / |x| for n = x / |x|.
#pragma once
#include <heed/layers/attention/linear.hpp>

namespace heed {

struct TaylorAttention {
  double eps = 1e-6;  // as in LinearFeatures: a key opposite to the query, alone, would be 0 / 0

  std::string name() const { return "taylor"; }
  AttentionCapabilities capabilities() const { return detail::linear_capabilities(); }
  double keys_per_query(Index, Index size) const { return static_cast<double>(size + 1); }
  Tensor apply(In q, In k, In v, const AttentionCall& call) const;
  AttentionState make_state() const;
  void members(auto&&) {}
};

}  // namespace heed

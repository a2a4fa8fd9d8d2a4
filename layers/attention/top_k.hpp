// Softmax attention over the k keys of largest score (Zhao et al., "Explicit sparse Transformer: concentrated attention
// through explicit selection", 2019), for each query on its own:
//
//   s_ij = scale * q_i . k_j + bias_ij     o_i = sum over the chosen j of softmax(s_i)_j v_j
//
// Chosen are min(k, allowed) keys; of equal scores the lower j. The choice is a constant in the gradient. Scores of all
// pairs are computed, O(n^2 D), in blocks of queries, so that memory is O(n k).
#pragma once
#include <heed/autograd/sparse_attention.hpp>
#include <heed/layers/attention/mechanism.hpp>
#include <optional>

namespace heed {

class TopKAttention {
 public:
  // `count` is k, 1 or more; else an Error. The scale is 1 / sqrt(D) unless given.
  explicit TopKAttention(Index count, std::optional<double> scale = {});
  std::string name() const { return "top-k"; }
  AttentionCapabilities capabilities() const {
    AttentionCapabilities can = AttentionCapabilities::of_pairs();
    can.discrete = true;
    return can;
  }
  Tensor apply(In q, In k, In v, const AttentionCall& call) const;
  AttentionState make_state() const;
  // The chosen keys, lists of each head.
  KeyLists lists(In q, In k, const AttentionCall& call) const;
  void members(auto&&) {}

 private:
  Index count_;
  std::optional<double> scale_;
};

}  // namespace heed

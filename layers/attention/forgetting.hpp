// Softmax attention with a forget gate (Lin, Nikishin, He, Courville, "Forgetting Transformer: softmax attention with a
// forget gate", 2025), as a mechanism: each position says, per head, which share of all before it is still to be seen.
//
//   f_j = sigmoid(forget_j),   s_ij = scale q_i . k_j + log f_{j+1} + ... + log f_i,   y_i = sum of softmax(s_i)_j v_j
//
// over j <= i, where the layer makes `forget` of its input, a number per key head and position. A masked key forgets
// nothing: rows with padding, before them or behind, are what they are without.
//
// With c_j = log f_1 + ... + log f_j a score is scale q_i . k_j - c_j + c_i, and c_i, the same for all keys of a query,
// has no part in its softmax. So it is softmax attention with a bias per key. As float32 could not tell neighbours
// apart where c is large, sums are float64, and each block of queries counts c from its first position.
#pragma once
#include <heed/autograd/attention.hpp>
#include <heed/layers/attention/mechanism.hpp>
#include <optional>

namespace heed {

struct ForgettingAttention {
  std::optional<double> scale = {};  // 1 / sqrt(D) unless given

  std::string name() const { return "forgetting"; }
  AttentionCapabilities capabilities() const {
    AttentionCapabilities can = AttentionCapabilities::of_pairs();
    can.causal_only = true;
    can.why = "what is forgotten lies between a key and a later query";
    return can;
  }
  std::vector<MechanismInput> inputs() const { return {{.name = "forget"}}; }
  Tensor apply(In q, In k, In v, const AttentionCall& call, std::span<const Tensor> inputs) const;
  AttentionState make_state() const;
  void members(auto&&) {}
};

}  // namespace heed

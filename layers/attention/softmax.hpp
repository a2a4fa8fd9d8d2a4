// Softmax attention, and those that differ from it by their scores alone: cosines, and a forget gate.
//
// Example:
//
//   Rng rng(1);
//   const Tensor q = rng.normal({1, 2, 5, 8});
//   const Tensor y = SoftmaxAttention{.scale = 0.5}.apply(q, q, q, {.causal = true});
//   const MultiHeadAttention layer({.width = 16, .heads = 2}, rng, ForgettingAttention());
#pragma once
#include <heed/autograd/attention.hpp>
#include <heed/core/random.hpp>
#include <heed/layers/attention/mechanism.hpp>
#include <optional>

namespace heed {

// ---- Softmax ----

// Scaled dot-product attention with softmax (Vaswani et al. 2017), as a mechanism.

struct SoftmaxAttention {
  std::optional<double> scale = {};  // 1 / sqrt(D) unless given

  std::string name() const { return "softmax"; }
  AttentionCapabilities capabilities() const {
    AttentionCapabilities can = AttentionCapabilities::of_pairs();
    can.bfloat16 = true;
    return can;
  }
  Tensor apply(In q, In k, In v, const AttentionCall& call) const { return attention(q, k, v, call, scale); }
  AttentionState make_state() const;
  void members(auto&&) {}
};

// ---- Cosines ----

// Content-based addressing (Graves, Wayne and Danihelka, "Neural Turing machines", 2014, equations 5 and 6), as a
// mechanism, for each head:
//
//   s_ij = beta q_i / |q_i| . k_j / |k_j|     w = softmax_j(s)     beta = exp(log_beta) > 0
//   ds = w * (dw - sum_j w dw)                dlog_beta = sum_ij ds_ij s_ij
//   d(q / |q|)_i = beta sum_j ds_ij k_j / |k_j|         d(k / |k|)_j = beta sum_i ds_ij q_i / |q_i|
//   dx = (dn - n (n . dn)) / |x|, where n = x / |x|
//
// A query or key of nothing but zeros has a cosine of 0 with all, and no gradient.

struct CosineAttention {
  Parameter log_beta;  // [heads], 0 at first: beta starts at 1

  // size and rng are not used: they are what mechanisms with parameters are made from.
  CosineAttention(Exactly<Index> heads, Exactly<Index> size, Rng& rng);

  std::string name() const { return "cosine"; }
  AttentionCapabilities capabilities() const { return AttentionCapabilities::of_pairs(); }
  Tensor apply(In q, In k, In v, const AttentionCall& call) const;
  Tensor map_keys(In k, const AttentionCall& call) const;  // their directions
  Tensor apply_mapped(In q, In keys, In v, const AttentionCall& call) const;
  AttentionState make_state() const;
  void members(auto&& visit) { visit("log_beta", log_beta); }
};

// ---- A forget gate ----

// Softmax attention with a forget gate (Lin, Nikishin, He, Courville, "Forgetting Transformer: softmax attention with a
// forget gate", 2025), as a mechanism: each position says, per head, which share of all before it is still to be seen.
//
//   f_j = sigmoid(forget_j),   s_ij = scale q_i . k_j + log f_{j+1} + ... + log f_i,   y_i = sum of softmax(s_i)_j v_j
//
// over j <= i, where the layer makes `forget` of its input, a number per key head and position. A masked key forgets
// nothing: rows with padding, before them or behind, are what they are without.
//
// With c_j = log f_1 + ... + log f_j a score is scale q_i . k_j + c_l - c_j, where l is the last key that query i may
// see (any other choice changes all scores of a query by the same). Differences are taken in float64 of sums that are
// kept in two parts, so that any number of gates may close, down to forget = -inf: what follows a gate of 0 equals, to
// rounding, a sequence that begins there, and a query whose keys are all hidden by such gates gets zeros. A forget of
// -1e9 or less has no gradient.

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

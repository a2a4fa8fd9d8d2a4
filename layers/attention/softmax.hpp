// Softmax attention, and mechanisms that differ from softmax attention only in their scores: cosines, distances, heads
// that talk, and a forget gate.
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

// Scaled dot-product attention with softmax (Vaswani et al. 2017), as a mechanism. See attention().
struct SoftmaxAttention {
  std::optional<double> scale = {};  // 1 / sqrt(D) by default

  // The members of a mechanism: see mechanism.hpp.
  std::string name() const { return "softmax"; }
  AttentionCapabilities capabilities() const {
    return AttentionCapabilities::of_pairs({.documents = true, .bfloat16 = true});
  }
  Tensor apply(In q, In k, In v, const AttentionCall& call) const { return attention(q, k, v, call, scale); }
  AttentionState make_state() const { return KeyValueState(*this); }
  void members(auto&&) {}
};

// ---- Cosines ----

// Content-based addressing (Graves, Wayne and Danihelka, "Neural Turing machines", 2014, equations 5 and 6), as a
// mechanism. Per head:
//
//   s_ij = beta q_i / |q_i| . k_j / |k_j|     w = softmax_j(s)     beta = exp(log_beta) > 0
//   ds = w * (dw - sum_j w dw)                dlog_beta = sum_ij ds_ij s_ij
//   d(q / |q|)_i = beta sum_j ds_ij k_j / |k_j|         d(k / |k|)_j = beta sum_i ds_ij q_i / |q_i|
//   dx = (dn - n (n . dn)) / |x|, where n = x / |x|
//
// A query or key of zeros has the cosine 0 with all others, and no gradient.
struct CosineAttention {
  Parameter log_beta;  // [heads]; initially 0, so that beta is 1

  // Throws Error for heads below 1. size and rng are not used; constructors of mechanisms with parameters take them.
  CosineAttention(Exactly<Index> heads, Exactly<Index> size, Rng& rng);

  // The members of a mechanism: see mechanism.hpp.
  std::string name() const { return "cosine"; }
  AttentionCapabilities capabilities() const { return AttentionCapabilities::of_pairs({.documents = true}); }
  Tensor apply(In q, In k, In v, const AttentionCall& call) const;
  Tensor map_keys(In k, const AttentionCall& call) const;  // k / |k|
  Tensor apply_mapped(In q, In keys, In v, const AttentionCall& call) const;
  AttentionState make_state() const;
  void members(auto&& visit) { visit("log_beta", log_beta); }
};

// ---- Distances ----

// Attention by the Gaussian kernel, RBF (Tsai et al., "Transformer dissection: a unified understanding of Transformer's
// attention via the lens of kernel", 2019), as a mechanism:
//
//   weight of j: exp(-|q_i - k_j|^2 / (2 width^2)), normalised
//
// As |q_i|^2 is the same for all keys, this is softmax attention with scores (q_i . k_j - |k_j|^2 / 2) / width^2: with
// queries [q, 1], keys [k, -|k|^2 / 2] and the scale 1 / width^2. A score has the rounding error of |k|^2 / width^2,
// which is large if keys are far from 0 and close to each other.
struct RbfAttention {
  double width = 0;  // 0: sqrt(sqrt(D) / 2), for weights exp(-|q - k|^2 / sqrt(D)) as in the paper

  // Throws Error for a width that is negative or not finite.
  explicit RbfAttention(double kernel_width = 0);

  // The members of a mechanism: see mechanism.hpp.
  std::string name() const { return "rbf"; }
  AttentionCapabilities capabilities() const { return AttentionCapabilities::of_pairs({.documents = true}); }
  Tensor apply(In q, In k, In v, const AttentionCall& call) const;
  Tensor map_keys(In k, const AttentionCall& call) const;  // [k, -|k|^2 / 2]
  Tensor apply_mapped(In q, In keys, In v, const AttentionCall& call) const;
  AttentionState make_state() const;
  void members(auto&&) {}
};

// ---- Talking heads ----

// Talking-heads attention (Shazeer, Lan, Cheng, Ding, Hou, "Talking-heads attention", 2020), as a mechanism: products
// with matrices M and N [heads, heads] mix the scores of all heads before the softmax, and the weights after it.
//
//   s_h = sum_g M_hg q_g . k_g / sqrt(D) + bias_h     w_h = softmax(s_h)     u_h = sum_g N_hg w_g     y_h = u_h v_h
//
// Weights u may be negative and need not add up to 1. Dropout acts on u. The scores of all heads exist at once, so time
// and memory are O(n^2).
struct TalkingHeadsAttention {
  Parameter before_softmax, after_softmax;  // M and N [heads, heads]; initially the identity, which is plain softmax

  explicit TalkingHeadsAttention(Exactly<Index> heads);  // throws Error for heads below 1

  // The members of a mechanism: see mechanism.hpp.
  std::string name() const { return "talking-heads"; }
  AttentionCapabilities capabilities() const { return AttentionCapabilities::of_pairs({.documents = true}); }
  Tensor apply(In q, In k, In v, const AttentionCall& call) const;
  Tensor weights(In q, In k, const AttentionCall& call) const;
  AttentionState make_state() const;
  void members(auto&& visit) {
    visit("before_softmax", before_softmax);
    visit("after_softmax", after_softmax);
  }
};

// ---- A forget gate ----

// Softmax attention with a forget gate (Lin, Nikishin, He, Courville, "Forgetting Transformer: softmax attention with a
// forget gate", 2025), as a mechanism. Per head, the gate of a position is the share of all earlier positions that
// later queries still see.
//
//   f_j = sigmoid(forget_j),   s_ij = scale q_i . k_j + log f_{j+1} + ... + log f_i,   y_i = sum of softmax(s_i)_j v_j
//
// The sum is over j <= i. The layer computes `forget` from its input, one number per key head and position. A masked
// key forgets nothing, so padding at either end of a row does not change the result of the row.
//
// With c_j = log f_1 + ... + log f_j, a score is scale q_i . k_j + c_l - c_j, where l is the last key visible to query
// i. (Another l would add the same number to all scores of a query.) Each c is kept in two float64 parts, the sum of
// rounded log gates and the sum of the remainders, so any number of gates may close, down to forget = -inf. Positions
// after a gate of 0 give the same result, up to rounding, as a sequence that begins at the gate. A query whose keys are
// all hidden by such gates gets zeros. A forget of -1e9 or less has no gradient.
struct ForgettingAttention {
  std::optional<double> scale = {};  // 1 / sqrt(D) by default

  // The members of a mechanism: see mechanism.hpp. The input `forget` is [B, Hk, S, 1].
  std::string name() const { return "forgetting"; }
  AttentionCapabilities capabilities() const {
    return AttentionCapabilities::of_pairs(
        {.causal_only = true, .documents = true, .why = "forget gates act between a key and a later query"});
  }
  std::vector<MechanismInput> inputs() const { return {{.name = "forget"}}; }
  Tensor apply(In q, In k, In v, const AttentionCall& call, std::span<const Tensor> inputs) const;
  AttentionState make_state() const;
  void members(auto&&) {}
};

}  // namespace heed

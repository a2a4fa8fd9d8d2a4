// Mechanisms with a state in place of a cache, with gates and delta rules (autograd/gated_attention.hpp): RetNet,
// Mamba-2, GLA, DeltaNet, Gated DeltaNet and KDA. All are causal, take linear time, and decode in constant memory.
//
// Example:
//
//   Rng rng(1);
//   const MultiHeadAttention layer({.width = 16, .heads = 2}, rng, StateAttention(StateRule::gated_delta, 2, 8, rng));
//   const Tensor y = layer(rng.normal({2, 100, 16}), {.causal = true});
#pragma once
#include <heed/autograd/gated_attention.hpp>
#include <heed/layers/attention/mechanism.hpp>

namespace heed {

// What happens to the state S of a head at each position, before the query reads it: o_t = scale q_t S_t with
// scale 1 / sqrt(D) unless said. `gate` and `rate` are linear functions of x that the layer computes; A and D are
// parameters per head.
enum class StateRule {
  // RetNet (Sun et al., "Retentive network: a successor to Transformer for large language models", 2023):
  // S_t = a S + k^T v with a = 1 - 2^(-5 - h) for head h from 0. As published, with rotary positions.
  retention,
  // Mamba-2 (Dao and Gu, "Transformers are SSMs: generalized models and efficient algorithms through structured state
  // space duality", 2024): d = softplus(gate), S_t = exp(-exp(A) d) S + d k^T v, o_t = q S_t + D v.
  ssd,
  // GLA (Yang et al., "Gated linear attention Transformers with hardware-efficient training", 2023):
  // S_t = diag(a) S + k^T v with a = sigmoid(gate)^(1/16), a vector. The published gate is a map of rank 16.
  gla,
  // DeltaNet (Yang et al., "Parallelizing linear Transformers with the delta rule over sequence length", 2024):
  // S_t = S + b k^T (v - k S) with b = sigmoid(rate).
  delta,
  // Gated DeltaNet (Yang, Kautz, Hatamizadeh, "Gated delta networks: improving Mamba2 with delta rule", 2024):
  // S' = exp(-exp(A) softplus(gate)) S, S_t = S' + b k^T (v - k S').
  gated_delta,
  // KDA (Kimi team, "Kimi Linear: an expressive, efficient attention architecture", 2025): as gated_delta, with a gate
  // per channel. The published gate is a map of the rank of a head.
  kda
};

// Attention by one of these rules, as a mechanism. With a delta rule, q and k are SiLU(q) and SiLU(k) divided by their
// norm, x rsqrt(sum x^2 + 1e-6). A masked key changes neither the state nor its gate.
class StateAttention {
 public:
  Parameter decay;  // [heads]: A of ssd, gated_delta and kda
  Parameter skip;   // [heads]: D of ssd

  // size: of queries and keys. exp(A) begins uniform in [1, 16], and D at 1. Throws Error for heads or a size below 1.
  StateAttention(StateRule rule, Exactly<Index> heads, Exactly<Index> size, Rng& rng);

  // The members of a mechanism: see mechanism.hpp. The input `gate` has one number per head, or one per channel for gla
  // and kda; delta rules have the input `rate` of one number.
  std::string name() const;
  AttentionCapabilities capabilities() const;
  std::vector<MechanismInput> inputs() const;
  double keys_per_query(Index, Index size) const { return static_cast<double>(size); }
  Tensor apply(In q, In k, In v, const AttentionCall& call, std::span<const Tensor> inputs) const;
  AttentionState make_state() const;
  StateRule rule() const { return rule_; }  // as given to the constructor
  void members(auto&& visit) {
    visit("decay", decay);
    visit("skip", skip);
  }

 private:
  StateRule rule_;
  Index heads_, size_;

  void check_inputs(const std::string& op, In q, std::span<const Tensor> given) const;
};

}  // namespace heed

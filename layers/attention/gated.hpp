// Mechanisms with a state in place of a cache, with gates and delta rules (autograd/gated_attention.hpp): RetNet,
// Lightning Attention, Mamba-2, GLA, DeltaNet, Gated DeltaNet and KDA. All are causal, take linear time, and decode in
// constant memory.
//
// Example:
//
//   Rng rng(1);
//   const MultiHeadAttention layer({.width = 16, .heads = 2}, rng, StateAttention(StateRule::gated_delta, 2, 8, rng));
//   const Tensor y = layer(rng.normal({2, 100, 16}), {.causal = true});
#pragma once
#include <heed/autograd/gated_attention.hpp>
#include <heed/layers/attention/mechanism.hpp>
#include <heed/layers/convolution.hpp>
#include <optional>

namespace heed {

// What happens to the state S of a head at each position, before the query reads it: o_t = scale q_t S_t with
// scale 1 / sqrt(D) unless said. `gate` and `rate` are linear functions of x that the layer computes; A and D are
// parameters per head.
enum class StateRule {
  // RetNet (Sun et al., "Retentive network: a successor to Transformer for large language models", 2023):
  // S_t = a S + k^T v with a = 1 - 2^(-5 - h) for head h from 0. As published, with rotary positions.
  retention,
  // Lightning Attention (Qin et al., "Lightning Attention-2: a free lunch for handling unlimited sequence lengths in
  // large language models", 2024), as in the layers of MiniMax-01 (MiniMax, "MiniMax-01: scaling foundation models with
  // lightning attention", 2025): S_t = a S + k^T v and o_t = q S_t, where q, k and v are SiLU of the projections, and
  //   a = exp(-2^(-8 (h + 1) / H) f),  f = 1 - l / (L - 1 + 1e-5) + 1e-5,  for head h of H in layer l of L, from 0
  // So the last layers forget almost nothing. It is a rule and not only a set of decays for retention, because the
  // layer also differs in scale, activation and norm: RMSNorm over all heads together, then the gate sigmoid.
  lightning,
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

// The name of the rule for --attention.
constexpr const char* name_of(StateRule rule) {
  switch (rule) {
    case StateRule::retention: return "retention";
    case StateRule::lightning: return "lightning";
    case StateRule::ssd: return "ssd";
    case StateRule::gla: return "gla";
    case StateRule::delta: return "delta";
    case StateRule::gated_delta: return "gated-delta";
    default: return "kda";
  }
}

// The function of the output gate: result * silu(gate) or result * sigmoid(gate).
enum class OutputGate { none, silu, sigmoid };

// Parts around the rule, for StateAttention.
struct StateAttentionOptions {
  Index value_heads = 1;  // per head of q and k; they share queries and keys, and have gates and rates of their own
  Index value_size = 0;   // of v per head of q and k, so of all its value heads; 0: value_heads * size
  // Above 1: each channel of q, k and v is mixed with those of the positions before it, by a causal convolution over
  // this many positions, followed by SiLU. A document reads no other document.
  Index convolution = 1;
  // RMSNorm of each value head's result; for ssd after the gate, of all value heads of a head; for lightning of all
  // heads together.
  bool norm = false;
  double norm_eps = 1e-5;
  OutputGate output_gate = OutputGate::none;  // by a linear function of x
  // > 0: the rank of the map from x to a gate per channel, and for kda to the output gate; 0: full.
  Index gate_rank = 0;
  double max_rate = 1;  // of the delta rule: b = max_rate sigmoid(rate), at most 2; above 1, states may change sign
  // Delta rules: steps per position, each with a key, a value and a rate of its own, after the gate of the position.
  // The query reads after the last step. (Siems et al., "DeltaProduct: improving state-tracking in linear RNNs via
  // Householder products", 2025)
  Index householders = 1;
  Index layer = 0, layers = 0;  // lightning: l and L of the decays; layers 0: f = 1

  // The options of the published layer, for heads of this size.
  static StateAttentionOptions published(StateRule rule, Exactly<Index> size);
};

// Attention by one of these rules, as a mechanism. With a delta rule, q and k are SiLU(q) and SiLU(k) divided by their
// norm, x rsqrt(sum x^2 + 1e-6). A masked key changes neither the state nor its gate, and counts as 0 in convolutions,
// as does the query at its position.
class StateAttention {
 public:
  Parameter decay;                               // [heads * value_heads]: A of ssd, gated_delta and kda
  Parameter gate_bias;                           // [heads * numbers of the input `gate`], added to it
  Parameter skip;                                // [heads * value_heads]: D of ssd
  std::optional<Conv1d> q_conv, k_conv, v_conv;  // of each channel; with options.convolution. A bias for ssd only
  // With options.norm: [size of a value head], for ssd [value_size], for lightning [heads * value_size].
  Parameter norm;

  // size: of queries and keys. exp(A) begins uniform in [1, 16], and D at 1. The biases of ssd, gated_delta and kda
  // begin so that softplus(bias) is between 0.001 and 0.1, uniform in its logarithm (Mamba-2); those of gla at 0.
  // Throws Error for heads or sizes below 1, and options out of range.
  StateAttention(StateRule rule, Exactly<Index> heads, Exactly<Index> size, Rng& rng,
                 const StateAttentionOptions& options = {});

  // The members of a mechanism: see mechanism.hpp. The input `gate` has one number per value head, or one per channel
  // of a value head for gla and kda; delta rules have the input `rate` of one number per step and value head. `steps`
  // has the keys, and then the values, of the steps after the first. `output` is the output gate, of the size of v.
  std::string name() const;
  AttentionCapabilities capabilities() const;
  std::vector<MechanismInput> inputs() const;
  double keys_per_query(Index, Index size) const { return static_cast<double>(size * options_.householders); }
  Tensor apply(In q, In k, In v, const AttentionCall& call, std::span<const Tensor> inputs) const;
  AttentionState make_state() const;
  StateRule rule() const { return rule_; }                           // as given to the constructor
  const StateAttentionOptions& options() const { return options_; }  // with values for 0
  void members(auto&& visit) {
    visit("decay", decay);
    visit("gate_bias", gate_bias);
    visit("skip", skip);
    visit("q_conv", q_conv);
    visit("k_conv", k_conv);
    visit("v_conv", v_conv);
    visit("norm", norm);
  }

 private:
  StateRule rule_;
  Index heads_, size_;
  StateAttentionOptions options_;

  void check_arguments(In q, In k, In v, std::span<const Tensor> given) const;
};

}  // namespace heed

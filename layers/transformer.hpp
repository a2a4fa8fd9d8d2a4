// Transformer blocks, encoder and decoder (Vaswani et al. 2017), with the norm before (norm_first) or after each part.
#pragma once
#include <heed/layers/attention/multi_head.hpp>
#include <heed/layers/feed_forward.hpp>
#include <heed/layers/norm.hpp>

namespace heed {

struct TransformerOptions {
  Index width = 512;
  Index heads = 8;
  Index kv_heads = 0;
  Index key_size = 0;  // of a head's queries and keys, and of its values: as MultiHeadAttentionOptions
  Index value_size = 0;
  Index hidden = 0;  // of the feed-forward part; 0: its default
  Index layers = 6;
  Index memory_width = 0;  // > 0: blocks also attend to a memory (decoder)
  double dropout = 0.1;    // after each part, and on the attention weights where the mechanism has it
  FeedForwardKind activation = FeedForwardKind::relu;
  NormKind norm = NormKind::layer;
  bool norm_first = false;  // false: x = norm(x + part(x)), as in the paper; true: x = x + part(norm(x))
  bool bias = true;  // false: neither projections nor norms have one
  bool rope = false;
  Index relative_clip = 0;  // > 0: a bias of self-attention by clipped distance, each block its own
  bool causal = false;
};

// Makes the mechanism of a block: mechanisms hold parameters, so each block needs its own.
using MechanismFactory = std::function<AttentionMechanism(Index layer, Rng& rng)>;
inline AttentionMechanism softmax_mechanism(Index, Rng&) { return SoftmaxAttention{}; }

class TransformerBlock {
 public:
  Norm norm1;
  MultiHeadAttention attention;
  std::optional<Norm> norm_cross;
  std::optional<MultiHeadAttention> cross;
  Norm norm2;
  FeedForward mlp;
  Dropout drop;

  TransformerBlock(const TransformerOptions& options, Rng& rng, AttentionMechanism mechanism = SoftmaxAttention{});

  Tensor operator()(In x, const AttentionCall& call = {}) const;  // [B, T, width]
  Tensor operator()(In x, In memory, const AttentionCall& call = {},
                    const AttentionCall& memory_call = {}) const;  // memory [B, S, memory_width]
  Tensor decode(In x, AttentionState& state, const AttentionCall& call = {}) const;
  Tensor decode(In x, In memory, AttentionState& state, const AttentionCall& call = {},
                const AttentionCall& memory_call = {}) const;

  void members(MemberVisitor& visit);

 private:
  bool norm_first_, causal_;

  template <class Self, class Cross>
  Tensor run(In x, const Self& self_part, const Cross& cross_part) const;
};

// A stack of blocks, and a last norm where the norms come first.
class Transformer {
 public:
  std::vector<TransformerBlock> blocks;
  std::optional<Norm> norm;

  Transformer(const TransformerOptions& options, Rng& rng, const MechanismFactory& mechanism = softmax_mechanism);

  Tensor operator()(In x, const AttentionCall& call = {}) const;
  Tensor operator()(In x, In memory, const AttentionCall& call = {}, const AttentionCall& memory_call = {}) const;
  std::vector<AttentionState> make_states() const;  // as GPT's
  // x continues what the states, one per block, have seen: causally, whatever the options, and not on a tape. Of the call
  // key_lengths and a bias, as AttentionState::apply().
  Tensor decode(In x, std::vector<AttentionState>& states, const AttentionCall& call = {}) const;
  Tensor decode(In x, In memory, std::vector<AttentionState>& states, const AttentionCall& call = {},
                const AttentionCall& memory_call = {}) const;

  void members(MemberVisitor& visit);
};

}  // namespace heed

// Transformer blocks, encoder and decoder (Vaswani et al. 2017), with the norm before (norm_first) or after each part.
//
// Example:
//
//   Rng rng(1);
//   const Transformer encoder({.width = 64, .heads = 4}, rng);
//   const Transformer decoder({.width = 64, .heads = 4, .memory_width = 64}, rng);
//   const Tensor source = rng.normal({2, 9, 64}), token = rng.normal({2, 1, 64});
//   TransformerState state = decoder.make_state(encoder(source));  // projects the memory, once
//   const Tensor y = decoder.decode(token, state);                 // for each token
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
  std::optional<double> attention_dropout = {};  // on those weights alone, where it is another
  FeedForwardKind activation = FeedForwardKind::relu;
  NormKind norm = NormKind::layer;
  bool norm_first = false;  // false: x = norm(x + part(x)), as in the paper; true: x = x + part(norm(x))
  bool bias = true;         // false: neither projections nor norms have one
  bool rope = false;
  bool qk_norm = false;     // of self- and cross-attention: MultiHeadAttentionOptions
  Index relative_clip = 0;  // > 0: a bias of self-attention by clipped distance, each block its own
  bool causal = false;
};

// Makes the mechanism of a block: mechanisms hold parameters, so each block needs its own.
using MechanismFactory = std::function<AttentionMechanism(Index layer, Rng& rng)>;
inline AttentionMechanism softmax_mechanism(Index, Rng&) { return SoftmaxAttention{}; }

// `mechanism` attends to the block's own positions, `cross_mechanism` to the memory of a decoder.
class TransformerBlock {
 public:
  Norm norm1;
  MultiHeadAttention attention;
  std::optional<Norm> norm_cross;
  std::optional<MultiHeadAttention> cross;
  Norm norm2;
  FeedForward mlp;
  Dropout drop;

  TransformerBlock(const TransformerOptions& options, Rng& rng, AttentionMechanism mechanism = SoftmaxAttention{},
                   AttentionMechanism cross_mechanism = SoftmaxAttention{});

  Tensor operator()(In x, const AttentionCall& call = {}) const;  // [B, T, width]
  // The memory is that of cross->project(), or projected here: [B, S, memory_width].
  Tensor operator()(In x, const ProjectedMemory& memory, const AttentionCall& call = {},
                    const AttentionCall& memory_call = {}) const;
  Tensor operator()(In x, In memory, const AttentionCall& call = {}, const AttentionCall& memory_call = {}) const {
    return (*this)(x, project(memory), call, memory_call);
  }
  Tensor decode(In x, AttentionState& state, const AttentionCall& call = {}) const;
  Tensor decode(In x, AttentionState& state, const ProjectedMemory& memory, const AttentionCall& call = {},
                const AttentionCall& memory_call = {}) const;
  ProjectedMemory project(In memory) const;  // for the cross-attention
  // What a call gives, and how x attended to the memory: [B, H, T, S]. Error where its mechanism has no weights.
  Tensor weighed(In x, const ProjectedMemory& memory, const AttentionCall& call, const AttentionCall& memory_call,
                 Tensor& weights) const;

  void members(MemberVisitor& visit);

 private:
  bool norm_first_, causal_;

  template <class Self, class Cross>
  Tensor run(In x, bool has_memory, const Self& self_part, const Cross& cross_part) const;
};

// What decoding keeps: what each block has seen and, of a decoder, the memory as each block attends to it.
struct TransformerState {
  std::vector<AttentionState> self = {};
  std::vector<ProjectedMemory> memory = {};
  AttentionCall memory_call = {};
  // int32 [B]: of each row, the row of the memory that it attends to, as make_state() was given it. Beams that change
  // places among those of one memory share what was projected with the state before.
  Tensor sources = {};

  TransformerState rows(const Tensor& indices) const;  // int32 [N]: row i of the result is row indices[i] of this
};

// A stack of blocks, and a last norm where the norms come first.
class Transformer {
 public:
  std::vector<TransformerBlock> blocks;
  std::optional<Norm> norm;

  Transformer(const TransformerOptions& options, Rng& rng, const MechanismFactory& mechanism = softmax_mechanism,
              const MechanismFactory& cross_mechanism = softmax_mechanism);

  Tensor operator()(In x, const AttentionCall& call = {}) const;
  Tensor operator()(In x, In memory, const AttentionCall& call = {}, const AttentionCall& memory_call = {}) const;
  // How x attends to the memory, of each block [B, H, T, S], without dropout and gradient. Error where the mechanism
  // has no weights.
  std::vector<Tensor> memory_weights(In x, In memory, const AttentionCall& call = {},
                                     const AttentionCall& memory_call = {}) const;
  // What decode() starts from. The memory, [B, S, memory_width], is projected here once; `memory_call` says how its
  // positions are attended to: key_lengths or a key mask of padded rows.
  TransformerState make_state() const;
  TransformerState make_state(In memory, const AttentionCall& memory_call = {}) const;
  // x [B, T, width] continues what the state has seen: causally, whatever the options, and not on a tape. Of the call
  // key_lengths and a bias, as AttentionState::apply().
  Tensor decode(In x, TransformerState& state, const AttentionCall& call = {}) const;

  void members(MemberVisitor& visit);
};

}  // namespace heed

// Transformer blocks, encoder and decoder (Vaswani et al. 2017), with norms before (norm_first) or after each part.
//
// Example:
//
//   Rng rng(1);
//   const Transformer encoder({.width = 64, .heads = 4}, rng);
//   const Transformer decoder({.width = 64, .heads = 4, .memory_width = 64}, rng);
//   const Tensor source = rng.normal({2, 9, 64}), token = rng.normal({2, 1, 64});
//   TransformerState state = decoder.make_state(encoder(source));  // projects the memory once
//   const Tensor y = decoder.decode(token, state);                 // once per token
#pragma once
#include <heed/layers/attention/multi_head.hpp>
#include <heed/layers/feed_forward.hpp>
#include <heed/layers/norm.hpp>

namespace heed {

// Options of Transformer and TransformerBlock.
struct TransformerOptions {
  Index width = 512;   // numbers per position
  Index heads = 8;     // query heads
  Index kv_heads = 0;  // 0: heads
  Index key_size = 0;  // key_size and value_size: sizes per head, as in MultiHeadAttentionOptions
  Index value_size = 0;  // 0: key_size
  Index hidden = 0;  // size of the feed-forward part; 0: its default
  Index layers = 6;  // number of blocks
  Index memory_width = 0;  // > 0: a decoder, whose blocks also attend to a memory
  double dropout = 0.1;    // after each part, and on attention weights if the mechanism supports that
  std::optional<double> attention_dropout = {};  // on attention weights, if it differs from `dropout`
  FeedForwardKind activation = FeedForwardKind::relu;  // of the feed-forward part
  NormKind norm = NormKind::layer;                     // LayerNorm or RMSNorm
  bool norm_first = false;  // false: x = norm(x + part(x)), as in the paper; true: x = x + part(norm(x))
  bool bias = true;         // false: projections and norms have no bias
  bool rope = false;        // rotary positions in self-attention
  bool qk_norm = false;     // for self-attention and cross-attention: see MultiHeadAttentionOptions
  Index relative_clip = 0;  // > 0: each block adds its own bias by clipped distance to the scores of self-attention
  bool causal = false;      // every call is causal
};

// Makes the mechanism of a block. Each block needs its own, because mechanisms may have parameters.
using MechanismFactory = std::function<AttentionMechanism(Index layer, Rng& rng)>;
inline AttentionMechanism softmax_mechanism(Index, Rng&) { return SoftmaxAttention{}; }  // for every block

// One block. `mechanism` is for self-attention, `cross_mechanism` for attention to the memory of a decoder.
class TransformerBlock {
 public:
  Norm norm1;                               // of the self-attention part
  MultiHeadAttention attention;             // self-attention
  std::optional<Norm> norm_cross;           // of the part that attends to the memory; nullopt unless a decoder
  std::optional<MultiHeadAttention> cross;  // attention to the memory; nullopt unless a decoder
  Norm norm2;                               // of the feed-forward part
  FeedForward mlp;                          // the feed-forward part
  Dropout drop;                             // of the results of attention

  // Throws Error as MultiHeadAttention and FeedForward.
  TransformerBlock(const TransformerOptions& options, Rng& rng, AttentionMechanism mechanism = SoftmaxAttention{},
                   AttentionMechanism cross_mechanism = SoftmaxAttention{});

  Tensor operator()(In x, const AttentionCall& call = {}) const;  // x [B, T, width] -> [B, T, width]
  // With a memory: the result of project(), or [B, S, memory_width], which is projected in the call.
  Tensor operator()(In x, const ProjectedMemory& memory, const AttentionCall& call = {},
                    const AttentionCall& memory_call = {}) const;
  Tensor operator()(In x, In memory, const AttentionCall& call = {}, const AttentionCall& memory_call = {}) const {
    return (*this)(x, project(memory), call, memory_call);
  }
  // Continues from a state: see Transformer::decode().
  Tensor decode(In x, AttentionState& state, const AttentionCall& call = {}) const;
  Tensor decode(In x, AttentionState& state, const ProjectedMemory& memory, const AttentionCall& call = {},
                const AttentionCall& memory_call = {}) const;
  ProjectedMemory project(In memory) const;  // [B, S, memory_width], for cross-attention
  // The result of a call with a memory. Also sets `weights`, how x attends to the memory: [B, H, T, S]. Throws Error if
  // the mechanism has no weights.
  Tensor weighed(In x, const ProjectedMemory& memory, const AttentionCall& call, const AttentionCall& memory_call,
                 Tensor& weights) const;

  void members(MemberVisitor& visit);  // norm1, attention, norm_cross, cross, norm2, mlp

 private:
  bool norm_first_, causal_;

  template <class Self, class Cross>
  Tensor run(In x, bool has_memory, const Self& self_part, const Cross& cross_part) const;
};

// The decode state: a state per block and, for a decoder, the memory as projected by each block.
struct TransformerState {
  std::vector<AttentionState> self = {};     // per block
  std::vector<ProjectedMemory> memory = {};  // per block; empty unless a decoder
  AttentionCall memory_call = {};            // for the memory, in every step
  // int32 [B]: for each row, the row of its memory among the rows given to make_state(). If rows() leaves all sources
  // in place, as when beams of one memory swap, the new state shares the projected memory with this one.
  Tensor sources = {};

  TransformerState rows(const Tensor& indices) const;  // int32 [N]: row i of the result is a copy of row indices[i]
};

// A stack of blocks, followed by a norm if norm_first.
class Transformer {
 public:
  std::vector<TransformerBlock> blocks;  // [layers]
  std::optional<Norm> norm;              // after the last block; nullopt unless norm_first

  // Throws Error for negative layers. The factories are called once per block.
  Transformer(const TransformerOptions& options, Rng& rng, const MechanismFactory& mechanism = softmax_mechanism,
              const MechanismFactory& cross_mechanism = softmax_mechanism);

  Tensor operator()(In x, const AttentionCall& call = {}) const;  // x [B, T, width] -> [B, T, width]
  // For a decoder: memory [B, S, memory_width].
  Tensor operator()(In x, In memory, const AttentionCall& call = {}, const AttentionCall& memory_call = {}) const;
  // How x attends to the memory, per block: [B, H, T, S], without dropout and gradient. Throws Error if the mechanism
  // has no weights.
  std::vector<Tensor> memory_weights(In x, In memory, const AttentionCall& call = {},
                                     const AttentionCall& memory_call = {}) const;
  // The initial state of decode(). Projects the memory [B, S, memory_width] once. `memory_call` applies to the memory
  // in every step: key_lengths or a key mask for padded rows.
  TransformerState make_state() const;
  TransformerState make_state(In memory, const AttentionCall& memory_call = {}) const;
  // x [B, T, width] follows the positions in the state, causally whatever the options: [B, T, width]. The call may have
  // key_lengths and a bias, as for AttentionState::apply(). Throws Error on a tape.
  Tensor decode(In x, TransformerState& state, const AttentionCall& call = {}) const;

  void members(MemberVisitor& visit);  // blocks, norm
};

}  // namespace heed

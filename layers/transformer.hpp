// Transformer blocks, encoder and decoder (Vaswani et al. 2017), with norms before (norm_first) or after each part.
//
// Example:
//
//   Rng rng(1);
//   const Transformer encoder({.layers = 2, .attention = {.width = 64, .heads = 4}}, rng);
//   const Transformer decoder({.layers = 2, .attention = {.width = 64, .heads = 4, .memory_width = 64}}, rng);
//   const Tensor source = rng.normal({2, 9, 64}), token = rng.normal({2, 1, 64});
//   TransformerState state = decoder.make_state(encoder(source));  // projects the memory once
//   const Tensor y = decoder.decode(token, state);                 // once per token
#pragma once
#include <heed/layers/attention/multi_head.hpp>
#include <heed/layers/feed_forward.hpp>
#include <heed/layers/norm.hpp>

namespace heed {

// Options of Transformer and TransformerBlock, and of the blocks of GPT and TransformerSeq2Seq. Unset values are those
// of Vaswani et al. 2017 (dropout 0.1, relu, norms after each part), and in a GPT no dropout, gelu and norms before.
struct TransformerOptions {
  Index layers = 6;  // number of blocks
  // Width and bias are those of all layers. memory_width > 0: a decoder, whose blocks also attend to a memory. Rotary
  // and relative positions are for self-attention only.
  MultiHeadAttentionOptions attention = {.width = 512, .heads = 8};
  Index hidden = 0;                    // size of the feed-forward part; 0: its default
  std::optional<double> dropout = {};  // after each part, and on attention weights if the mechanism supports that
  std::optional<FeedForwardKind> activation = {};  // of the feed-forward part
  NormKind norm = NormKind::layer;                 // of all norms; attention.norm_eps and unit_offset apply to them
  std::optional<bool> norm_first = {};             // false: x = norm(x + part(x)); true: x = x + part(norm(x))
  bool post_norms = false;                         // with norm_first: x = x + norm(part(norm(x))), as in Gemma 3
  // The blocks have two streams, x1 and x2, which both begin with x: x1 = x1 + attention(norm(x2)), and then x2 = x2 +
  // mlp(norm(x1)). Their mean is the result. Backward computes the streams from the result, so activations need the
  // memory of one block, for any number of blocks (Kitaev et al., "Reformer", 2020, which concatenates the streams; see
  // autograd/reversible.hpp). Requires norm_first and no memory.
  bool reversible = false;
  bool causal = false;                             // every call is causal; GPT and TransformerSeq2Seq set this

  NormLayerOptions norms() const {  // the options of all norms
    return {norm, attention.norm_eps, attention.bias, attention.unit_offset};
  }
  // The options with these values instead of unset ones.
  TransformerOptions or_else(double dropout, FeedForwardKind activation, bool norm_first) const;
  // The options of blocks in a model with these positions. Rope and relative positions are options of attention; the
  // default of relative_clip is then 16.
  TransformerOptions with_positions(PositionKind positions) const;
  // The fields in JSON (layers/model_config.hpp), for a model with these positions, except layers and norm_first, which
  // each model names.
  void fields(OptionFields& f, PositionKind positions);
};

// Makes the mechanism of a block. Each block needs its own, because mechanisms may have parameters.
using MechanismFactory = std::function<AttentionMechanism(Index layer, Rng& rng)>;
inline AttentionMechanism softmax_mechanism(Index, Rng&) { return SoftmaxAttention{}; }  // for every block

// One block. `mechanism` is for self-attention, `cross_mechanism` for attention to the memory of a decoder.
class TransformerBlock {
  TransformerOptions options_;  // the first member, because the others are built from it

 public:
  Norm norm1;                               // of the self-attention part
  MultiHeadAttention attention;             // self-attention
  std::optional<Norm> norm_cross;           // of the part that attends to the memory; nullopt unless a decoder
  std::optional<MultiHeadAttention> cross;  // attention to the memory; nullopt unless a decoder
  Norm norm2;                               // of the feed-forward part
  FeedForward mlp;                          // the feed-forward part
  std::optional<Norm> post_norm1, post_norm2;  // of the results of both parts; with post_norms
  Dropout drop;                             // of the results of attention

  // Throws Error as MultiHeadAttention and FeedForward.
  TransformerBlock(const TransformerOptions& options, Rng& rng, AttentionMechanism mechanism = SoftmaxAttention{},
                   AttentionMechanism cross_mechanism = SoftmaxAttention{});

  Tensor operator()(In x, const AttentionCall& call = {}) const;  // x [B, T, width] -> [B, T, width]
  // With a memory: the result of project(), or [B, S, memory_width], which is projected in the call. `weights`, unless
  // null, is set to how x attends to the memory: [B, H, T, S]; throws Error if the mechanism has no weights.
  Tensor operator()(In x, const ProjectedMemory& memory, const AttentionCall& call = {},
                    const AttentionCall& memory_call = {}, Tensor* weights = nullptr) const;
  Tensor operator()(In x, In memory, const AttentionCall& call = {}, const AttentionCall& memory_call = {}) const {
    return (*this)(x, project(memory), call, memory_call);
  }
  // Continues from a state: see Transformer::decode().
  Tensor decode(In x, AttentionState& state, const AttentionCall& call = {}) const;
  Tensor decode(In x, AttentionState& state, const ProjectedMemory& memory, const AttentionCall& call = {},
                const AttentionCall& memory_call = {}) const;
  ProjectedMemory project(In memory) const;  // [B, S, memory_width], for cross-attention
  // How x attends to itself: [B, H, T, T], as MultiHeadAttention::weights().
  Tensor weights(In x, const AttentionCall& call = {}) const;
  // The parts of a block with norm_first, without their sums. attend(h) is the attention of h.
  template <class Attend>
  Tensor attention_part(In x, const Attend& attend) const {
    const Tensor y = attend(In(norm1(x), x.where()));
    return drop(post_norm1 ? (*post_norm1)(y) : y);
  }
  Tensor feed_forward_part(In x) const;

  const TransformerOptions& options() const { return options_; }  // with values for unset ones

  void members(MemberVisitor& visit);  // norm1, attention, norm_cross, cross, norm2, mlp, post_norm1, post_norm2

 private:
  // `memory` is null in a block without cross-attention. Sets `weights` as operator().
  template <class Self>
  Tensor run(In x, const Self& self_part, const ProjectedMemory* memory = nullptr,
             const AttentionCall& memory_call = {}, Tensor* weights = nullptr) const;
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
  // Backward computes each block again, from its input, instead of keeping what is computed inside: less memory, about
  // a third more time, the same bits (autograd/tape.hpp: recompute()). Not for blocks that attend to a memory, and
  // without effect on reversible blocks.
  bool recomputes = false;

  // Throws Error for negative layers. The factories are called once per block.
  Transformer(const TransformerOptions& options, Rng& rng, const MechanismFactory& mechanism = softmax_mechanism,
              const MechanismFactory& cross_mechanism = softmax_mechanism);

  Tensor operator()(In x, const AttentionCall& call = {}) const;  // x [B, T, width] -> [B, T, width]
  // For a decoder: memory [B, S, memory_width].
  Tensor operator()(In x, In memory, const AttentionCall& call = {}, const AttentionCall& memory_call = {}) const;
  // How x attends to itself and to the memory, per block: [B, H, T, T] and [B, H, T, S], without dropout and gradient.
  // Throw Error if the mechanism has no weights.
  std::vector<Tensor> weights(In x, const AttentionCall& call = {}) const;
  std::vector<Tensor> memory_weights(In x, In memory, const AttentionCall& call = {},
                                     const AttentionCall& memory_call = {}) const;
  // The initial state of decode(). Projects the memory [B, S, memory_width] once. `memory_call` applies to the memory
  // in every step: key_lengths or a key mask for padded rows.
  TransformerState make_state() const;
  TransformerState make_state(In memory, const AttentionCall& memory_call = {}) const;
  // x [B, T, width] follows the positions in the state, causally whatever the options: [B, T, width]. The call may have
  // key_lengths and a bias, as for AttentionState::apply(). Throws Error on a tape.
  Tensor decode(In x, TransformerState& state, const AttentionCall& call = {}) const;
  Tensor decode(In x, std::vector<AttentionState>& states, const AttentionCall& call = {}) const;  // without a memory

  void members(MemberVisitor& visit);  // blocks, norm

 private:
  bool reversible_;

  template <class Attend>
  Tensor run_reversible(In x, const Attend& attend) const;
};

}  // namespace heed

// Multi-head attention: projections around a mechanism that may be any of heed's or a user's own.
//
// Example:
//
//   Rng rng(1);
//   const MultiHeadAttention self({.width = 16, .heads = 2}, rng, LinearAttention());
//   const Tensor x = rng.normal({2, 5, 16}), encoded = rng.normal({2, 9, 8});
//   const Tensor y = self(x, {.causal = true});  // [2, 5, 16]
//   const MultiHeadAttention cross({.width = 16, .heads = 2, .memory_width = 8}, rng);
//   const ProjectedMemory memory = cross.project(encoded);  // once, for all steps of a decoder
//   const Tensor z = cross(y, memory);
#pragma once
#include <array>
#include <heed/autograd/embedding.hpp>
#include <heed/layers/attention/softmax.hpp>
#include <heed/layers/embedding.hpp>
#include <heed/layers/linear.hpp>
#include <heed/layers/norm.hpp>
#include <optional>

namespace heed {

struct MultiHeadAttentionOptions {
  Index width = 0;
  Index heads = 1;         // divides width, unless key_size is given
  Index kv_heads = 0;      // 0: heads; fewer share keys and values between queries (grouped-query, Ainslie et al. 2023)
  Index key_size = 0;      // of a head's queries and keys; 0: width / heads
  Index value_size = 0;    // of a head's values; 0: key_size
  Index memory_width = 0;  // > 0: cross-attention to a memory of that width; 0: self-attention
  // > 0: values are not made from the memory, which gives keys alone, but from a tensor of their own of that width.
  // (memory_width and value_width are nn.MultiheadAttention's kdim and vdim.)
  Index value_width = 0;
  bool bias = true;
  double dropout = 0;  // on the weights, while training
  bool rope = false;   // rotary positions (Su et al. 2021) on queries and keys
  // RMSNorm of each head's queries and keys, before rotary positions, so that scores cannot grow without bound (after
  // Henry et al., "Query-key normalization for Transformers", 2020, whose norm is that of the vector).
  bool qk_norm = false;
  // > 0: a learned bias of the scores for each distance up to this one (RelativePositionBias). Self-attention only, by
  // a mechanism with a bias of single pairs.
  Index relative_clip = 0;
};

// What a layer attends to, projected.
struct ProjectedMemory {
  Tensor k = {};                    // [B, Hk, S, key_size]
  Tensor v = {};                    // [B, Hk, S, value_size]
  std::vector<Tensor> inputs = {};  // [B, Hk, S, size]: those of the mechanism that are of keys
  Tensor mapped = {};          // what the mechanism computes of the keys alone (map_keys()), where that was done before

  ProjectedMemory rows(const Tensor& indices) const;  // int32 [N]: row i of the result is row indices[i] of this
};

// Vaswani et al. 2017, section 3.2.2. Queries, keys and values of self-attention come from one product, and with them
// what the mechanism takes beside them (MechanismInput).
class MultiHeadAttention {
 public:
  // Rows of each product are queries [heads * key_size], keys [kv_heads * key_size], values [kv_heads * value_size],
  // those of them that it makes, and then the mechanism's inputs.
  std::optional<Linear> qkv;                     // self: queries, keys and values of [.., width]
  std::optional<Linear> q;                       // cross: queries of [.., width]
  std::optional<Linear> kv;                      // cross: keys and values of [.., memory_width]
  std::optional<Linear> k;                       // with value_width, in kv's place: keys of [.., memory_width]
  std::optional<Linear> v;                       // and values of [.., value_width]
  Linear proj;                                   // [width, heads * value_size]
  std::optional<RMSNorm> q_norm, k_norm;         // of [.., key_size]: with qk_norm
  std::optional<RelativePositionBias> relative;  // [heads, 2 relative_clip + 1]
  AttentionMechanism mechanism;

  MultiHeadAttention(const MultiHeadAttentionOptions& options, Rng& rng,
                     AttentionMechanism mechanism = SoftmaxAttention{});

  // Self-attention: x [B, T, width] -> [B, T, width]. Dropout of `call` is the layer's own.
  Tensor operator()(In x, const AttentionCall& call = {}) const;
  // Cross-attention.
  Tensor operator()(In x, const ProjectedMemory& memory, const AttentionCall& call = {}) const;
  Tensor operator()(In x, In memory, const AttentionCall& call = {}) const { return (*this)(x, project(memory), call); }
  Tensor operator()(In x, In keys, In values, const AttentionCall& call = {}) const {
    return (*this)(x, project(keys, values), call);
  }
  // memory [B, S, memory_width]. With value_width the values are of a tensor of their own, [B, S, value_width]; without
  // one the result serves weights() alone.
  ProjectedMemory project(In memory, const Tensor& values = {}) const;
  // Decoding: x [B, T, width] continues what `state` has seen, causally; the first call makes the state. Of the call
  // key_lengths and a bias, as AttentionState::apply(). Not on a tape: nothing is trained through a state.
  Tensor decode(In x, AttentionState& state, AttentionCall call = {}) const;
  // The weights [B, H, T, S] of x on itself, or on a memory, without dropout and gradient. Error where the mechanism
  // has none.
  Tensor weights(In x, const AttentionCall& call = {}) const;
  Tensor weights(In x, const ProjectedMemory& memory, const AttentionCall& call = {}) const;

  const MultiHeadAttentionOptions& options() const { return options_; }  // with the sizes in place of 0
  // Gives the biases of the mechanism's inputs what it declares for them: for whoever sets the layer's biases anew.
  void set_input_biases();

  void members(MemberVisitor& visit);

 private:
  MultiHeadAttentionOptions options_;

  struct Heads {  // what the mechanism is given: views
    Tensor q, k, v;
    Tensor mapped = {};                                   // as of ProjectedMemory
    std::array<Tensor, kMostMechanismInputs> given = {};  // no vector: a warm step asks for no memory
    std::size_t count = 0;

    void add(Tensor x) { given[count++] = std::move(x); }
    std::span<const Tensor> inputs() const { return {given.data(), count}; }
  };
  // Whether queries, keys and values are bfloat16, and so what a decode state keeps: where the mechanism takes them so,
  // and products round their operands, as the layer's weights are bfloat16 or MatmulPrecision says so.
  bool keeps_bfloat16() const;
  Tensor projected(const Linear& linear, In x, bool changed = false) const;
  Tensor kept(const Tensor& heads) const;
  Heads heads_of(In x, const RopeOptions& from = {}) const;
  Heads heads_of(In x, const ProjectedMemory& memory) const;
  AttentionCall with_relative(In x, const AttentionCall& call) const;  // with its bias, where positions are relative
  Tensor attend(const Heads& heads, AttentionCall call, const Where& where) const;
  Tensor merge(const Tensor& heads) const;  // [B, H, T, D] -> proj of [B, T, H * D]
};

}  // namespace heed

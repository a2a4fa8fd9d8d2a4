// Multi-head attention: projections around any attention mechanism, one of heed's or your own.
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

class OptionFields;

// Options of MultiHeadAttention.
struct MultiHeadAttentionOptions {
  Index width = 0;         // of the input and output; in a Transformer, of all layers
  Index heads = 1;         // divides width, unless key_size is given
  Index kv_heads = 0;      // 0: heads; fewer: query heads share keys and values (grouped-query, Ainslie et al. 2023)
  Index key_size = 0;      // size of queries and keys per head; 0: width / heads
  Index value_size = 0;    // size of values per head; 0: key_size
  Index memory_width = 0;  // > 0: cross-attention to a memory of this width; 0: self-attention
  // > 0: values are projected from a second tensor of this width, and the memory gives keys only. (memory_width and
  // value_width are kdim and vdim of nn.MultiheadAttention.)
  Index value_width = 0;
  bool bias = true;                    // of projections; in a Transformer, of all linear layers and norms
  std::optional<bool> qkv_bias = {};   // of queries, keys and values; unset: bias (Qwen2 has biases only here)
  std::optional<double> dropout = {};  // of weights, during training; unset: 0, in a Transformer its dropout
  bool rope = false;                   // rotary positions (Su et al. 2021) on queries and keys
  double rope_base = 0;                // of rope(); 0: 10000
  RopeScaling rope_scaling = {};       // of rope()
  // > 0: the base, without scaling, in layers whose mechanism is a window, as in Gemma 3.
  double window_rope_base = 0;
  // > 0: multiplies queries. Mechanisms with a scale divide scores by sqrt(key_size) in addition.
  double query_scale = 0;
  // RMSNorm of queries and keys per head, before rotary positions, which bounds the scores (after Henry et al.,
  // "Query-key normalization for Transformers", 2020, which divides by the length of the vector).
  bool qk_norm = false;
  double norm_eps = 0;       // of qk_norm; in a Transformer, of all norms. 0: 1e-6, and 1e-5 for a LayerNorm
  bool unit_offset = false;  // of qk_norm; in a Transformer, of all RMSNorms: they multiply by 1 + weight
  // > 0: adds a learned bias per distance to the scores, for distances up to this one (RelativePositionBias). For
  // self-attention by a mechanism with a bias per pair.
  Index relative_clip = 0;

  Index head_size() const { return key_size > 0 || heads <= 0 ? key_size : width / heads; }  // of queries and keys
  void fields(OptionFields& f);  // JSON: layers/model_config.hpp
};

// The projections of a memory: keys and values for cross-attention.
struct ProjectedMemory {
  Tensor k = {};                    // [B, Hk, S, key_size]
  Tensor v = {};                    // [B, Hk, S, value_size]
  std::vector<Tensor> inputs = {};  // [B, Hk, S, size]: inputs of the mechanism that are computed from keys
  Tensor mapped = {};               // result of the mechanism's map_keys(), if it was computed in advance

  void members(MemberVisitor& visit);  // k, v, inputs, mapped: for pick_rows()
};

// Multi-head attention (Vaswani et al. 2017, section 3.2.2). In self-attention one product computes queries, keys,
// values and the inputs of the mechanism (MechanismInput).
class MultiHeadAttention {
 public:
  // Rows of each weight, as far as the projection computes them: queries [heads * key_size], keys
  // [kv_heads * key_size], values [kv_heads * value_size], inputs of the mechanism (of one with a rank: rank rows).
  std::optional<Linear> qkv;                     // self: queries, keys and values from [.., width]
  std::optional<Linear> q;                       // cross: queries from [.., width]
  std::optional<Linear> kv;                      // cross: keys and values from [.., memory_width]
  std::optional<Linear> k;                       // cross with value_width, instead of kv: keys from [.., memory_width]
  std::optional<Linear> v;                       // with k: values from [.., value_width]
  Linear proj;                                   // [width, heads * value_size]
  std::vector<Linear> input_maps;                // [heads * size, rank]: per input with a rank, from its rows above
  std::optional<RMSNorm> q_norm, k_norm;         // over [.., key_size]; with qk_norm
  std::optional<RelativePositionBias> relative;  // [heads, 2 relative_clip + 1]; with relative_clip
  AttentionMechanism mechanism;

  // Throws Error for sizes that do not fit, and if the mechanism lacks attention to a memory or the bias of
  // relative_clip.
  MultiHeadAttention(const MultiHeadAttentionOptions& options, Rng& rng,
                     AttentionMechanism mechanism = SoftmaxAttention{});

  // Self-attention: x [B, T, width] -> [B, T, width]. The layer's dropout replaces that of the call. Rotary positions
  // begin with each document of the call.
  Tensor operator()(In x, const AttentionCall& call = {}) const;
  // Cross-attention: x [B, T, width] -> [B, T, width], to a projected memory or to one that is projected in the call.
  Tensor operator()(In x, const ProjectedMemory& memory, const AttentionCall& call = {}) const;
  Tensor operator()(In x, In memory, const AttentionCall& call = {}) const { return (*this)(x, project(memory), call); }
  Tensor operator()(In x, In keys, In values, const AttentionCall& call = {}) const {
    return (*this)(x, project(keys, values), call);
  }
  // Projects memory [B, S, memory_width]. With value_width, values are projected from `values` [B, S, value_width];
  // without `values` the result serves weights() only.
  ProjectedMemory project(In memory, const Tensor& values = {}) const;
  // Decoding: x [B, T, width] follows the positions in `state`, causally. The first call makes the state. The call may
  // have key_lengths and a bias, as for AttentionState::apply(). Throws Error on a tape, because a state passes no
  // gradient on.
  Tensor decode(In x, AttentionState& state, AttentionCall call = {}) const;
  // The weights [B, H, T, S] of x on x, or on a memory, without dropout and gradient. Throws Error if the mechanism has
  // none.
  Tensor weights(In x, const AttentionCall& call = {}) const;
  Tensor weights(In x, const ProjectedMemory& memory, const AttentionCall& call = {}) const;

  const MultiHeadAttentionOptions& options() const { return options_; }  // with values for 0 and unset ones
  // Sets the biases of the mechanism's inputs to their declared values. Call it after overwriting the layer's biases.
  void set_input_biases();

  // qkv, or q, kv, k and v; proj; input_maps; q_norm and k_norm; relative; mechanism
  void members(MemberVisitor& visit);

 private:
  MultiHeadAttentionOptions options_;

  struct Heads {  // the arguments of the mechanism, as views
    Tensor q, k, v;
    Tensor mapped = {};                                   // as in ProjectedMemory
    std::array<Tensor, kMaxMechanismInputs> given = {};   // not a vector: no allocation per step
    std::size_t count = 0;

    void add(Tensor x) { given[count++] = std::move(x); }
    std::span<const Tensor> inputs() const { return {given.data(), count}; }
  };
  // Whether queries, keys and values, and so the decode state, are bfloat16: if the mechanism takes bfloat16, has no
  // inputs, and products round their operands because of bfloat16 weights or of MatmulPrecision.
  bool keeps_bfloat16() const;
  Tensor projected(const Linear& linear, In x, bool changed = false) const;
  Index input_rows(const MechanismInput& input) const;  // rows of the input in the product with queries or keys
  Tensor in_state_dtype(const Tensor& heads) const;
  Heads heads_of(In x, RopeOptions from) const;
  RopeOptions rope_of(const AttentionCall& call) const;  // positions begin with each document of the call
  Heads heads_of(In x, const ProjectedMemory& memory) const;
  AttentionCall with_relative(In x, const AttentionCall& call) const;  // adds the relative bias, if any
  Tensor attend(const Heads& heads, AttentionCall call, const Where& where) const;
  Tensor merge(const Tensor& heads) const;  // [B, H, T, D] -> proj of [B, T, H * D]
};

}  // namespace heed

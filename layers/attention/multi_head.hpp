// Multi-head attention: projections around a mechanism that may be any of heed's or a user's own.
#pragma once
#include <heed/autograd/rope.hpp>
#include <heed/layers/attention/softmax.hpp>
#include <heed/layers/linear.hpp>
#include <heed/layers/positions.hpp>
#include <optional>

namespace heed {

struct MultiHeadAttentionOptions {
  Index width = 0;
  Index heads = 1;         // divides width
  Index kv_heads = 0;      // 0: heads; fewer share keys and values between queries (grouped-query, Ainslie et al. 2023)
  Index memory_width = 0;  // > 0: cross-attention to a memory of that width; 0: self-attention
  // > 0: values are not made from the memory, which gives keys alone, but from a tensor of their own of that width.
  // (memory_width and value_width are nn.MultiheadAttention's kdim and vdim.)
  Index value_width = 0;
  bool bias = true;
  double dropout = 0;  // on the weights, while training
  bool rope = false;   // rotary positions (Su et al. 2021) on queries and keys
  // > 0: a learned bias of the scores for each distance up to this one (RelativePositionBias). Self-attention only, by
  // a mechanism with a bias of single pairs.
  Index relative_clip = 0;
};

// Vaswani et al. 2017, section 3.2.2. Queries, keys and values of self-attention come from one product.
class MultiHeadAttention {
 public:
  std::optional<Linear> qkv;                     // self: [(heads + 2 kv_heads) * size, width]
  std::optional<Linear> q;                       // cross: [heads * size, width]
  std::optional<Linear> kv;                      // cross: [2 kv_heads * size, memory_width]
  std::optional<Linear> k;                       // with value_width, in kv's place: [kv_heads * size, memory_width]
  std::optional<Linear> v;                       // and [kv_heads * size, value_width]
  Linear proj;                                   // [width, heads * size]
  std::optional<RelativePositionBias> relative;  // [heads, 2 relative_clip + 1]
  AttentionMechanism mechanism;

  MultiHeadAttention(const MultiHeadAttentionOptions& options, Rng& rng,
                     AttentionMechanism mechanism = SoftmaxAttention{});

  // Self-attention: x [B, T, width] -> [B, T, width]. Dropout of `call` is the layer's own.
  Tensor operator()(In x, AttentionCall call = {}) const;
  // Cross-attention: memory [B, S, memory_width].
  Tensor operator()(In x, In memory, AttentionCall call = {}) const;
  // With value_width: keys [B, S, memory_width], values [B, S, value_width].
  Tensor operator()(In x, In keys, In values, AttentionCall call = {}) const;
  // Decoding: x [B, T, width] continues what `state` has seen, causally; the first call makes the state. Of the call
  // key_lengths and a bias, as AttentionState::apply(). Not on a tape: nothing is trained through a state.
  Tensor decode(In x, AttentionState& state, AttentionCall call = {}) const;
  // The weights [B, H, T, T] of self-attention on x, without dropout and gradient. Error where the mechanism has none.
  Tensor weights(In x, AttentionCall call = {}) const;
  // Those of cross-attention, [B, H, T, S]. The memory may be the keys alone.
  Tensor weights(In x, In memory, AttentionCall call = {}) const;

  const MultiHeadAttentionOptions& options() const { return options_; }

  void members(MemberVisitor& visit);

 private:
  MultiHeadAttentionOptions options_;
  Index size_;  // of a head

  struct Heads {
    Tensor q, k, v;  // [B, H, T, D], [B, Hk, S, D] twice: views
  };
  Heads split_self(In x, const RopeOptions& from = {}) const;
  Heads split_cross(In x, In memory, In values) const;  // values are undefined where the memory gives them
  void add_relative(In x, AttentionCall& call) const;  // its bias, where positions are relative
  Tensor merge(In heads) const;                        // [B, H, T, D] -> proj of [B, T, H * D]
};

}  // namespace heed

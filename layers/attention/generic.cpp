#include <heed/layers/attention/generic.hpp>
#include <heed/layers/attention/key_value_state.hpp>

namespace heed {

static GenericAttentionOptions options_of(const AttentionCall& call, const GenericMechanismOptions& o) {
  return {.causal = call.causal,
          .scale = o.scale,
          .key_lengths = call.key_lengths,
          .key_mask = call.key_mask,
          .mask = call.mask,
          .bias = call.bias,
          .dropout = call.dropout,
          .pool = o.pool,
          .pooling = o.pooling};
}

GenericAttention::GenericAttention(Similarity similarity, const GenericMechanismOptions& options)
    : similarity_(std::move(similarity)), options_(options) {
  require(options_.pool >= 1, "GenericAttention: pool is ", options_.pool, "; it must be 1 or more");
}

AttentionCapabilities GenericAttention::capabilities() const {
  AttentionCapabilities can{.key_mask = true, .dropout = true, .cross = true, .grouped = true};
  if (options_.pool > 1) {
    can.why = "pooled keys mix positions";
    return can;
  }
  can.causal = can.full_mask = can.bias = can.weights = can.state = true;
  return can;
}

Tensor GenericAttention::apply(In q, In k, In v, const AttentionCall& call) const {
  return generic_attention(q, k, v, similarity_, options_of(call, options_));
}

Tensor GenericAttention::weights(In q, In k, const AttentionCall& call) const {
  return generic_attention_weights(q, k, similarity_, options_of(call, options_));
}

AttentionState GenericAttention::make_state() const {
  return KeyValueState([self = *this](In q, In k, In v, const Tensor& bias) {
    return self.apply(q, k, v, {.causal = true, .bias = bias});
  });
}

}  // namespace heed

// Attention by any similarity, as a mechanism.
#include <heed/layers/attention/flex.hpp>
#include <heed/layers/attention/states.hpp>

namespace heed {

GenericAttention::GenericAttention(Similarity similarity, const GenericAttentionOptions& options)
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

AttentionState GenericAttention::make_state() const {
  return KeyValueState(
      [self = *this](In q, In k, In v, const AttentionCall& call) { return self.apply(q, k, v, call); });
}

}  // namespace heed

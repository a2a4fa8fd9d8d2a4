// Attention by any similarity, as a mechanism.
#include <heed/layers/attention/flex.hpp>

namespace heed {

GenericAttention::GenericAttention(Similarity similarity, const GenericAttentionOptions& options)
    : similarity_(std::move(similarity)), options_(options) {
  require(options_.pool >= 1, "GenericAttention: pool is ", options_.pool, "; it must be 1 or more");
}

AttentionCapabilities GenericAttention::capabilities() const {
  if (options_.pool == 1) return AttentionCapabilities::of_pairs({.documents = true});
  return {.key_mask = true, .dropout = true, .cross = true, .grouped = true, .why = "pooled keys mix positions"};
}

}  // namespace heed

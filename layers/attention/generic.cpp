// Attention by any similarity, and by a polynomial kernel, as mechanisms.
#include <cmath>
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

Tensor PolynomialAttention::apply(In q, In k, In v, const AttentionCall& call) const {
  const double size = q.rank() == 4 && q.dim(3) > 0 ? static_cast<double>(q.dim(3)) : 1;  // others are refused below
  return generic_attention(q, k, v, similarity_, call, {.scale = 1 / (static_cast<double>(degree_) * std::sqrt(size))});
}

}  // namespace heed

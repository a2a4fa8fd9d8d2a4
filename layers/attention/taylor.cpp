#include <heed/autograd/attention_inputs.hpp>
#include <heed/autograd/norms.hpp>
#include <heed/autograd/shape_ops.hpp>
#include <heed/layers/attention/taylor.hpp>

namespace heed {
namespace {

// [1; x / |x|]: [..., D + 1]
Tensor features(In x) { return concatenate({Tensor::ones(x.shape().with(-1, 1), x.dtype()), normalize(x)}, -1); }

LinearAttentionOptions of_features(LinearAttentionOptions o) {
  o.feature_map = FeatureMap::identity;
  o.signed_features = true;  // 1 + a cosine is never negative
  return o;
}

}  // namespace

Tensor taylor_attention(In q, In k, In v, const LinearAttentionOptions& options) {
  detail::check_heads("taylor_attention", q, k, v);
  detail::check_key_masks("taylor_attention", k, options.key_lengths, options.key_mask);
  const Tensor keys = detail::without_padding(k, options.key_lengths, options.key_mask);
  return linear_attention({features(q), q.where()}, features(keys), v, of_features(options));
}

AttentionState TaylorAttention::make_state() const {
  return LinearAttentionState([eps = eps](In q, In k, In v, LinearAttentionSums& sums) {
    const NoTape guard;
    return linear_attention_step({features(q), q.where()}, features(k), v, sums, of_features({.eps = eps}));
  });
}

}  // namespace heed

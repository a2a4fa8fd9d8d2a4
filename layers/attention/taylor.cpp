// Taylor attention: linear attention on normalised queries and keys.
#include <heed/autograd/attention.hpp>
#include <heed/autograd/detail/attention_inputs.hpp>
#include <heed/autograd/norms.hpp>
#include <heed/autograd/shape_ops.hpp>
#include <heed/layers/attention/linear.hpp>

namespace heed {
namespace {

// [1; x / |x|]: [..., D + 1]
Tensor features(In x) { return concatenate({Tensor::ones(x.shape().with(-1, 1), x.dtype()), normalize(x)}, -1); }

// Features may be negative, because 1 + a cosine is not.
LinearFeatures as_features(double eps) {
  return {.feature_map = FeatureMap::identity, .signed_features = true, .eps = eps};
}

}  // namespace

Tensor TaylorAttention::apply(In q, In k, In v, const AttentionCall& call) const {
  detail::check_heads("taylor attention", q, k, v);
  const Tensor keys = without_padding(k, call, "taylor attention");
  return linear_attention({features(q), q.where()}, features(keys), v, call, as_features(eps));
}

AttentionState TaylorAttention::make_state() const {
  return LinearAttentionState([eps = eps](In q, In k, In v, LinearAttentionSums& sums, const AttentionCall& call) {
    const Tensor keys = without_padding(k, call);
    return linear_attention_step({features(q), q.where()}, features(keys), v, sums, call, as_features(eps));
  });
}

}  // namespace heed

// Talking-heads attention: products that mix the scores and the weights of the heads.
#include <cmath>
#include <heed/autograd/attention.hpp>
#include <heed/autograd/detail/attention_inputs.hpp>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/matmul.hpp>
#include <heed/autograd/reductions.hpp>
#include <heed/layers/attention/detail/compositions.hpp>
#include <heed/layers/attention/softmax.hpp>
#include <heed/layers/attention/states.hpp>

namespace heed {
namespace {

constexpr const char* kTalking = "talking-heads attention";

// y[b, h] = sum over g of mix[h, g] x[b, g], for x [B, H, T, S].
Tensor mix_heads(In x, In mix) {
  const Index batch = x.dim(0), heads = x.dim(1), pairs = x.dim(2) * x.dim(3);
  return matmul(mix, x->reshape({batch, heads, pairs})).reshape(x.shape());
}

// The pairs that the masks and a bias above -infinity allow.
Tensor allowed_for(In q, In k, const AttentionCall& call) {
  const Tensor allowed = allowed_pairs(q, k, call);
  return call.bias.defined() ? logical_and(allowed, call.bias > -detail::kInfinity) : allowed;
}

// The weights of all heads, [B, H, T, S], without dropout.
Tensor talking_weights(In q, In k, In before, In after, const AttentionCall& call) {
  detail::check_pairs(kTalking, q, k, call);
  const Shape square = {q.dim(1), q.dim(1)};
  check(before.shape() == square && after.shape() == square && before.dtype() == q.dtype(), q.where(), kTalking,
        ": q is ", q.tensor(), " and the products that mix heads are ", before.tensor(), " and ", after.tensor(),
        "; they must be [heads, heads] of q's dtype");
  const double scale = 1 / std::sqrt(static_cast<double>(q.dim(3)));
  const Tensor keys = detail::repeat_heads(without_padding(k, call, kTalking), q.dim(1));
  Tensor scores = mix_heads(matmul(q * scale, keys.transpose(2, 3)), before);
  if (call.bias.defined()) scores = scores + call.bias;
  const Tensor allowed = allowed_for(q, k, call);
  // A head may give weight to a key that is masked for another head alone.
  return where(allowed, mix_heads(masked_softmax(scores, allowed), after), 0.0);
}

Tensor attend_talking(In q, In k, In v, In before, In after, const AttentionCall& call) {
  detail::check_heads(kTalking, q, k, v);
  Tensor weights = talking_weights(q, k, before, after, call);
  if (call.dropout > 0) weights = dropout(weights, call.dropout);
  const Tensor values = detail::repeat_heads(without_padding(v, call, kTalking), q.dim(1));
  if (std::isfinite(sum(values.detach() * 0).item())) return matmul(weights, values);
  const Tensor seen = allowed_for(q, k, call).to(q.dtype()).expand(weights.shape());
  return matmul(weights, masked_fill(values, logical_not(isfinite(values)), 0)) +
         detail::non_finite_part(weights.detach(), values.detach(), seen);
}

}  // namespace

TalkingHeadsAttention::TalkingHeadsAttention(Exactly<Index> heads) {
  require(heads > 0, "TalkingHeadsAttention: heads is ", heads, "; it must be 1 or more");
  for (Parameter* mix : {&before_softmax, &after_softmax}) {
    *mix = Parameter(Tensor::zeros({heads, heads}));
    for (Index h = 0; h < heads; ++h) mix->ptr<float>()[h * (heads + 1)] = 1;
  }
}

Tensor TalkingHeadsAttention::apply(In q, In k, In v, const AttentionCall& call) const {
  return attend_talking(q, k, v, before_softmax, after_softmax, call);
}

Tensor TalkingHeadsAttention::weights(In q, In k, const AttentionCall& call) const {
  return talking_weights(q, k, before_softmax, after_softmax, call);
}

AttentionState TalkingHeadsAttention::make_state() const {
  const Tensor before = before_softmax, after = after_softmax;
  return KeyValueState(
      [=](In q, In k, In v, const AttentionCall& call) { return attend_talking(q, k, v, before, after, call); });
}

}  // namespace heed

#include <heed/layers/attention/key_value_state.hpp>
#include <heed/layers/attention/softmax.hpp>

namespace heed {

Tensor SoftmaxAttention::apply(In q, In k, In v, const AttentionCall& call) const {
  // The heads lie side by side in memory, so that merging them again is a view.
  const Tensor y = attention_merged(q, k, v,
                                    {.causal = call.causal,
                                     .scale = scale,
                                     .key_lengths = call.key_lengths,
                                     .key_mask = call.key_mask,
                                     .mask = call.mask,
                                     .bias = call.bias,
                                     .dropout = call.dropout});
  return y.view({q.dim(0), q.dim(2), q.dim(1), v.dim(3)}).transpose(1, 2);
}

AttentionState SoftmaxAttention::make_state() const {
  return KeyValueState([scale = scale](In q, In k, In v, const Tensor& bias) {
    return attention(q, k, v, {.causal = true, .scale = scale, .bias = bias});
  });
}

Tensor SoftmaxAttention::weights(In q, In k, const AttentionCall& call) const {
  return attention_weights(q, k,
                           {.causal = call.causal,
                            .scale = scale,
                            .key_lengths = call.key_lengths,
                            .key_mask = call.key_mask,
                            .mask = call.mask,
                            .bias = call.bias});
}

}  // namespace heed

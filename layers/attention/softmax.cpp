#include <heed/layers/attention/key_value_state.hpp>
#include <heed/layers/attention/softmax.hpp>

namespace heed {

AttentionState SoftmaxAttention::make_state() const {
  return KeyValueState([scale = scale](In q, In k, In v, const Tensor& bias) {
    return attention(q, k, v, {.causal = true, .bias = bias}, scale);
  });
}

}  // namespace heed

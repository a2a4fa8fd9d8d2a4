// The decode state of softmax attention.
#include <heed/layers/attention/softmax.hpp>
#include <heed/layers/attention/states.hpp>

namespace heed {

AttentionState SoftmaxAttention::make_state() const {
  return KeyValueState(
      [self = *this](In q, In k, In v, const AttentionCall& call) { return self.apply(q, k, v, call); });
}

}  // namespace heed

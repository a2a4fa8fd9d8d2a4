// The decode state that stores sums over keys and values.
#include <heed/layers/attention/detail/row_lengths.hpp>
#include <heed/layers/attention/states.hpp>

namespace heed {

Tensor LinearAttentionState::apply(In q, In k, In v, const AttentionCall& call) {
  check(!call.bias.defined(), q.where(), "AttentionState: bias is ", call.bias,
        ", but this state has no scores of single pairs to add a bias to; it must be undefined");
  const NoTape guard;  // no gradient passes through decoding
  const Tensor after = detail::lengths_after("LinearAttentionState", lengths_, k, call);
  const Tensor y = step_(q, k, v, sums_, {.key_lengths = call.key_lengths});
  lengths_ = after;  // last, so that an error leaves the state unchanged
  return y;
}

}  // namespace heed

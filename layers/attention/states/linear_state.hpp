// The decode state of linear attention and its relatives: the sums over all keys and values so far, of one size however
// many came before.
//
//   return LinearAttentionState([](In q, In k, In v, LinearAttentionSums& sums, const AttentionCall& call) {
//     return linear_attention_step(q, k, v, sums, call);
//   });
#pragma once
#include <heed/autograd/linear_attention.hpp>
#include <heed/layers/attention/states/attention_state.hpp>

namespace heed {

class LinearAttentionState {
 public:
  // Goes on from the sums, of which each row has its own. The call has key_lengths where some of the T keys are padding.
  using Step = std::function<Tensor(In q, In k, In v, LinearAttentionSums& sums, const AttentionCall& call)>;

  explicit LinearAttentionState(Step step) : step_(std::move(step)) {}
  Tensor apply(In q, In k, In v, const AttentionCall& call = {});  // causally: [B, H, T, Dv]
  const Tensor& lengths() const { return lengths_; }
  void members(auto&& visit) {
    visit.buffer("lengths", lengths_);
    visit.buffer("sums", sums_.sums);
    visit.buffer("norms", sums_.norms);
    visit.buffer("maxima", sums_.maxima);
  }

 private:
  Step step_;
  LinearAttentionSums sums_;
  Tensor lengths_ = Tensor::zeros({0}, DType::int32);
};

}  // namespace heed

// Scaled dot-product attention with softmax (Vaswani et al. 2017), as a mechanism.
#pragma once
#include <heed/autograd/attention.hpp>
#include <heed/layers/attention/mechanism.hpp>
#include <optional>

namespace heed {

struct SoftmaxAttention {
  std::optional<double> scale = {};  // 1 / sqrt(D) unless given

  std::string name() const { return "softmax"; }
  AttentionCapabilities capabilities() const { return AttentionCapabilities::of_pairs(); }
  Tensor apply(In q, In k, In v, const AttentionCall& call) const { return attention(q, k, v, call, scale); }
  AttentionState make_state() const;
  void members(auto&&) {}
};

}  // namespace heed

// Scaled dot-product attention with softmax (Vaswani et al. 2017), as a mechanism.
#pragma once
#include <heed/autograd/attention.hpp>
#include <heed/layers/attention/mechanism.hpp>
#include <optional>

namespace heed {

// The keys and values of all positions so far.
class KeyValueCache {
 public:
  Tensor apply(In q, In k, In v);  // appends [B, Hk, T, D] and attends causally: [B, H, T, Dv]
  Index length() const { return length_; }
  void members(auto&& visit) {
    visit.buffer("keys", keys_);
    visit.buffer("values", values_);
  }

 private:
  Tensor keys_, values_;  // [B, Hk, capacity, D], [B, Hk, capacity, Dv]
  Index length_ = 0;
};

struct SoftmaxAttention {
  std::optional<double> scale = {};  // 1 / sqrt(D) unless given

  std::string name() const { return "softmax"; }
  AttentionCapabilities capabilities() const {
    return {.causal = true,
            .key_mask = true,
            .full_mask = true,
            .bias = true,
            .dropout = true,
            .weights = true,
            .state = true,
            .cross = true,
            .grouped = true};
  }
  Tensor apply(In q, In k, In v, const AttentionCall& call) const;
  AttentionState make_state() const { return KeyValueCache(); }
  void members(auto&&) {}
};

}  // namespace heed

// Attention by any similarity of queries and keys (Wang, Girshick, Gupta, He, "Non-local neural networks", 2018), as a
// mechanism. Formula and derivative: autograd/generic_attention.hpp.
#pragma once
#include <heed/autograd/generic_attention.hpp>
#include <heed/layers/attention/mechanism.hpp>

namespace heed {

class GenericAttention {
 public:
  // Error for a pool below 1.
  explicit GenericAttention(Similarity similarity, const GenericAttentionOptions& options = {});
  std::string name() const { return "generic"; }
  AttentionCapabilities capabilities() const;
  Tensor apply(In q, In k, In v, const AttentionCall& call) const {
    return generic_attention(q, k, v, similarity_, call, options_);
  }
  AttentionState make_state() const;
  const Similarity& similarity() const { return similarity_; }
  void members(auto&&) {}

 private:
  Similarity similarity_;
  GenericAttentionOptions options_;
};

}  // namespace heed

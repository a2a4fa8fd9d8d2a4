// Attention by any similarity of queries and keys (Wang, Girshick, Gupta, He, "Non-local neural networks", 2018), as a
// mechanism. Formula and derivative: autograd/generic_attention.hpp.
#pragma once
#include <heed/autograd/generic_attention.hpp>
#include <heed/layers/attention/mechanism.hpp>

namespace heed {

struct GenericMechanismOptions {
  double scale = 1;  // of q . k
  Index pool = 1;    // > 1: over pooled keys, which can be neither causal nor masked or biased by pairs
  Pooling pooling = Pooling::average;
};

class GenericAttention {
 public:
  // Error for a pool below 1.
  explicit GenericAttention(Similarity similarity, const GenericMechanismOptions& options = {});
  std::string name() const { return "generic"; }
  AttentionCapabilities capabilities() const;
  Tensor apply(In q, In k, In v, const AttentionCall& call) const;
  Tensor weights(In q, In k, const AttentionCall& call) const;
  AttentionState make_state() const;
  const Similarity& similarity() const { return similarity_; }
  void members(auto&&) {}

 private:
  Similarity similarity_;
  GenericMechanismOptions options_;
};

}  // namespace heed

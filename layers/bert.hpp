// An encoder with a language-model head, after BERT (Devlin et al. 2018): every position sees all. As in the GPT here,
// and unlike the paper, norms come first, the output is the embedding's and nothing is between; there are no segments.
#pragma once
#include <heed/layers/gpt.hpp>

namespace heed {

// GPT's options; `causal` is not read.
using BERTOptions = GPTOptions;

class BERT {
 public:
  GPT net;  // not causal; its members are BERT's own

  BERT(const BERTOptions& options, Rng& rng, const MechanismFactory& mechanism = softmax_mechanism)
      : net(not_causal(options), rng, mechanism) {}

  // x int32 [B, T]; key_lengths int32 [B], or undefined: positions at and behind the length are padding, which has no
  // effect on the others. Their own results mean nothing: give them the target -100, or leave them out.
  Tensor hidden(In x, const Tensor& key_lengths = {}) const {  // [B, T, width], after the last norm
    return net.hidden(x, {.key_lengths = key_lengths});
  }
  Tensor operator()(In x, const Tensor& key_lengths = {}) const {  // logits [B, T, vocabulary]
    return net(x, {.key_lengths = key_lengths});
  }
  // Mean cross-entropy of the targets y, int32 [B, T], that are not -100; never holds all logits.
  Tensor loss(In x, In y, const Tensor& key_lengths = {}) const { return net.loss(x, y, {.key_lengths = key_lengths}); }

  const BERTOptions& options() const { return net.options(); }
  const MechanismFactory& mechanism_factory() const { return net.mechanism_factory(); }
  ActivationBytes predict_activations(Index batch, Index length) const {
    return net.predict_activations(batch, length);
  }
  double flops_per_token(Index length) const { return net.flops_per_token(length); }

  void members(auto&& visit) { net.members(visit); }

 private:
  static BERTOptions not_causal(BERTOptions options) {
    options.causal = false;
    return options;
  }
};

}  // namespace heed

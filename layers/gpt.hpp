// Whole language models: the decoder of GPT, and the encoder of BERT.
//
// Example:
//
//   Rng rng(1);
//   const GPT model({.vocabulary = 65, .context = 64, .layers = 2, .heads = 2, .width = 32}, rng);
//   const Tensor logits = model(Tensor::from<std::int32_t>({1, 2, 3}, {1, 3}));  // [1, 3, 65]
#pragma once
#include <heed/layers/decoding.hpp>
#include <heed/layers/embedding.hpp>
#include <heed/layers/model.hpp>
#include <heed/layers/transformer.hpp>
#include <string>

namespace heed {

// ---- GPT ----

// A decoder-only language model after GPT-2 (Radford et al. 2019): pre-norm blocks, causal, output tied to the
// embedding. GPT-2 itself is these options but for .activation = FeedForwardKind::gelu_tanh: its GELU is the
// approximation by tanh (gelu_new, PyTorch's approximate="tanh"). Biases, LayerNorm with eps 1e-5, learned positions
// are as here.

struct GPTOptions {
  Index vocabulary = 256;
  Index context = 256;  // positions that the model can see
  Index layers = 6;
  Index heads = 6;
  Index kv_heads = 0;    // 0: heads
  Index key_size = 0;    // of a head's queries and keys; 0: width / heads
  Index value_size = 0;  // of a head's values; 0: key_size
  Index width = 384;
  Index hidden = 0;  // of the feed-forward part; 0: its default
  double dropout = 0;
  FeedForwardKind activation = FeedForwardKind::gelu;  // by the error function, as BERT's and PyTorch's default
  NormKind norm = NormKind::layer;                     // eps 1e-5; rms: 1e-6
  PositionKind positions = PositionKind::learned;
  bool rope = false;         // rotary positions beside those of another kind
  bool qk_norm = false;      // RMSNorm of queries and keys: MultiHeadAttentionOptions
  Index relative_clip = 16;  // where positions are relative: a bias (RelativePositionBias); farther counts as this far
  bool bias = true;          // of the blocks: of linear layers and norms; the last LayerNorm has one in any case
  bool tied = true;          // output weights are the embedding's
  // Weights before a residual sum begin as 0, so that each block begins as the identity (after Goyal et al., "Accurate,
  // large minibatch SGD", 2017, section 5.1, and torchvision's option of this name).
  bool zero_init_residual = false;
  bool causal = true;        // false: every position sees all, as BERT's (layers/gpt.hpp); there is no decoding then
};

class GPT {
 public:
  Embedding tokens;                           // [vocabulary, width]
  std::optional<LearnedPositions> positions;  // [context, width]
  std::vector<TransformerBlock> blocks;
  Norm norm;
  Parameter output;  // [vocabulary, width], unless tied
  Dropout drop;

  // Weights normal(0, 0.02), those before a residual sum divided by sqrt(2 layers), as GPT-2's (or zero_init_residual).
  // `mechanism` is kept, for clone(): what it refers to must live as long.
  GPT(const GPTOptions& options, Rng& rng, const MechanismFactory& mechanism = softmax_mechanism);

  // int32 [B, T] -> logits [B, T, vocabulary]. `call` says more of how to attend: key_lengths of padded rows.
  Tensor operator()(In x, const AttentionCall& call = {}) const;
  // Mean cross-entropy of targets y, int32 [B, T]; never holds all logits.
  Tensor loss(In x, In y, const AttentionCall& call = {}) const;
  Tensor hidden(In x, const AttentionCall& call = {}) const;  // what the output layer reads, [B, T, width]

  // Decoding: x, int32 [B, T], continues what the states have seen; logits of each row's last position [B, vocabulary].
  // Of the call key_lengths, for rows of different length: as AttentionState::apply(). Not on a tape: nothing is
  // trained through the states.
  Tensor decode(In x, std::vector<AttentionState>& states, const AttentionCall& call = {}) const;

  // What generate() and beam_search() begin with, for any number of rows. Beyond the model's context a row goes on from
  // its last half context, read anew. Error where the model is not causal.
  DecodeState make_state() const;

  // One for each block, which have seen nothing: what decode() starts from, and load_state() fills.
  std::vector<AttentionState> make_states() const;

  // How the positions of x, int32 [B, T], attend to each other: [B, H, T, T] of each block, without dropout and
  // gradient. Error where the mechanism has no weights.
  std::vector<Tensor> attention_weights(In x) const;

  const GPTOptions& options() const { return options_; }
  const MechanismFactory& mechanism_factory() const { return mechanism_factory_; }
  // Bytes that a training step on `batch` rows of `length` tokens keeps for backward.
  ActivationBytes predict_activations(Index batch, Index length) const;
  // Multiply-adds count two: 6 per weight and token forward and backward, and the products of the attention, those that
  // its mechanism needs.
  double flops_per_token(Index length) const;

  // Draws all weights anew as at the beginning, each by the generator given for its name. What a mechanism holds stays.
  void init_weights(const std::function<Rng&(const std::string& name)>& rng_for);

  void members(MemberVisitor& visit);

 private:
  GPTOptions options_;
  MechanismFactory mechanism_factory_;
  std::optional<SinusoidalPositions> sinusoids_;

  bool bounded() const {  // there is something for each position of the context, and no more
    return options_.positions == PositionKind::learned || options_.positions == PositionKind::sinusoidal;
  }
  Tensor embed(In x) const;
  Tensor embed_behind(In x, const Tensor& seen, const AttentionCall& call) const;
  const Parameter& output_weight() const { return options_.tied ? tokens.weight : output; }
};

// ---- BERT ----

// An encoder with a language-model head, after BERT (Devlin et al. 2018): every position sees all. As in the GPT here,
// and unlike the paper, norms come first, the output is the embedding's and nothing is between; there are no segments.

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

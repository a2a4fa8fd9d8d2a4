// Language models: GPT's decoder and BERT's encoder.
//
// Example:
//
//   Rng rng(1);
//   const GPT model({.vocabulary = 65, .context = 64, .blocks = {.layers = 2, .attention = {.width = 32, .heads = 2}}},
//                   rng);
//   const Tensor logits = model(Tensor::from<std::int32_t>({1, 2, 3}, {1, 3}));  // [1, 3, 65]
#pragma once
#include <heed/layers/decoding.hpp>
#include <heed/layers/model.hpp>
#include <heed/layers/token_input.hpp>
#include <heed/layers/transformer.hpp>
#include <string>

namespace heed {

// ---- GPT ----

// A decoder-only language model after GPT-2 (Radford et al. 2019): causal, pre-norm blocks, output tied to the
// embedding. GPT-2 itself has these options with .blocks.activation = FeedForwardKind::gelu_tanh (gelu_new, PyTorch's
// approximate="tanh"). Biases, LayerNorm with eps 1e-5 and learned positions are the same.

// Options of GPT.
struct GPTOptions {
  Index vocabulary = 256;  // number of tokens
  Index context = 256;  // maximum number of positions
  // Unset values: no dropout, exact gelu, norms before each part. The norm after the last block always has a bias.
  TransformerOptions blocks = {};
  PositionKind positions = PositionKind::learned;  // relative: relative_clip is 16 by default
  bool tied = true;                                // the output weight is the embedding
  // > 0: soft cap of the logits, logit_cap * tanh(logits / logit_cap), as in Gemma 2 (2024). The loss then needs memory
  // for all logits.
  double logit_cap = 0;
  // Weights before a residual sum are initially 0, so that each block is initially the identity (after Goyal et al.,
  // "Accurate, large minibatch SGD", 2017, section 5.1, and torchvision's option of this name).
  bool zero_init_residual = false;
  bool scaled_embedding = false;  // multiplies embeddings by sqrt(width), as in Gemma
  Index token_types = 0;          // > 0: adds a vector per type of token, as in BERT
  bool input_norm = false;        // a norm of the embeddings, as in BERT
  bool output_bias = false;       // a number per token, added to the logits
  bool output_transform = false;  // a layer between the blocks and the output, as in BERT
  bool causal = true;  // false: positions see all positions, as in BERT; such a model cannot decode

  GPTOptions settled() const;    // with values for unset ones
  void fields(OptionFields& f);  // JSON, flags, summary(): layers/model_config.hpp
};

// The layer that BERT has between its blocks and its output: norm(activation(dense(x))).
struct OutputTransform {
  Linear dense;                // [width, width]
  FeedForwardKind activation;  // that of the blocks, without a gate
  Norm norm;                   // of the result

  // The layer for a model with these options.
  OutputTransform(const GPTOptions& options, Rng& rng);
  Tensor operator()(In x) const { return norm(activate(dense(x), activation)); }  // [..., width] -> [..., width]
  void members(auto&& visit) { visit("dense", dense), visit("norm", norm); }      // dense, norm
};

// A language model.
class GPT {
  GPTOptions options_;  // the first member, because the others are built from it
  MechanismFactory mechanism_factory_;

 public:
  TokenInput input;         // tokens [vocabulary, width], positions [context, width]
  Transformer transformer;  // its members are members of the GPT: blocks and norm
  Parameter output;         // [vocabulary, width]; undefined if tied
  std::optional<OutputTransform> transform;  // with output_transform
  Parameter output_bias;                     // [vocabulary]; undefined without output_bias

  // Weights are normal(0, 0.02); weights before a residual sum are divided by sqrt(2 layers), as in GPT-2 (but see
  // zero_init_residual). `mechanism` is kept for clone(), so objects that it refers to must outlive the model. Throws
  // Error for sizes out of range.
  GPT(const GPTOptions& options, Rng& rng, const MechanismFactory& mechanism = softmax_mechanism);

  // Logits: int32 [B, T] -> [B, T, vocabulary]. The call may have key_lengths, for padded rows, and documents, for rows
  // that hold several documents. Each document then has the logits that it has in a row by itself, up to rounding.
  Tensor operator()(In x, const AttentionCall& call = {}) const;
  // Mean cross-entropy of targets y, int32 [B, T]. Without a logit_cap, never holds all logits at once.
  Tensor loss(In x, In y, const AttentionCall& call = {}) const;
  // The result of the blocks, [B, T, width]. `token_types`, int32 [B, T], are 0 by default.
  Tensor hidden(In x, const AttentionCall& call = {}, const Tensor& token_types = {}) const;
  // The logits and the loss of a result of hidden(), as above: for token types, or for other losses of this result.
  Tensor logits_of(In hidden) const;
  Tensor loss_of(In hidden, In y) const;

  // Decoding: x, int32 [B, T], follows the tokens in the states. Returns logits [B, vocabulary] of each row's last
  // position. The call may have key_lengths, for rows of different lengths, as for AttentionState::apply(). Throws
  // Error on a tape, and if the model is not causal.
  Tensor decode(In x, std::vector<AttentionState>& states, const AttentionCall& call = {}) const;

  // The state for generate() and beam_search(), for any number of rows. When a row exceeds the context, the model reads
  // the last half context of the row again and continues from there. Throws Error if the model is not causal.
  DecodeState make_state() const;

  // One empty state per block: the initial states for decode(), or for load_state().
  std::vector<AttentionState> make_states() const;

  // How the positions of x, int32 [B, T], attend to each other, per block: [B, H, T, T], without dropout and gradient.
  // `token_types` are those of hidden(). Throws Error if the mechanism has no weights.
  std::vector<Tensor> attention_weights(In x, const Tensor& token_types = {}) const;

  // The arguments of the constructor.
  const GPTOptions& options() const { return options_; }
  const MechanismFactory& mechanism_factory() const { return mechanism_factory_; }
  // Bytes that a training step on `batch` rows of `length` tokens keeps for backward.
  ActivationBytes predict_activations(Index batch, Index length) const;
  // Operations per token of a training step; a multiply-add counts as two. 6 per weight for forward and backward, plus
  // the products of the attention that the mechanism needs.
  double flops_per_token(Index length) const;

  // Draws all weights again as in the constructor, each from the generator rng_for(name). Members of mechanisms are
  // unchanged.
  void init_weights(const std::function<Rng&(const std::string& name)>& rng_for);

  void members(MemberVisitor& visit);  // those of input and transformer; transform, output, output_bias

 private:
  Tensor transformed(const Tensor& hidden) const;  // the input of the output layer
  const Parameter& output_weight() const { return options_.tied ? input.tokens->weight : output; }
};

// ---- BERT ----

// An encoder with a language-model head, after BERT (Devlin et al. 2018): every position sees all positions. As in GPT,
// and unlike the paper, norms are by default before the parts, the output is the embedding without a layer in between,
// and there are no types of tokens. The paper's model has these options:
//   .blocks = {.norm_first = false}, .token_types = 2, .input_norm = true, .output_bias = true,
//   .output_transform = true
// examples/articles/bert.cpp pre-trains it.

// The options of GPT; `causal` is not read.
using BERTOptions = GPTOptions;

// A masked language model: a GPT with options.causal = false, which cannot decode.
class BERT : public GPT {
 public:
  // As GPT.
  BERT(const BERTOptions& options, Rng& rng, const MechanismFactory& mechanism = softmax_mechanism)
      : GPT(not_causal(options), rng, mechanism) {}

  // x int32 [B, T]. key_lengths int32 [B], or undefined: later positions are padding, which has no effect on other
  // positions. Results at padding are meaningless: give them the target -100, or do not use them.
  Tensor hidden(In x, const Tensor& key_lengths = {}, const Tensor& token_types = {}) const {  // [B, T, width]
    return GPT::hidden(x, {.key_lengths = key_lengths}, token_types);
  }
  Tensor operator()(In x, const Tensor& key_lengths = {}) const {  // logits [B, T, vocabulary]
    return GPT::operator()(x, {.key_lengths = key_lengths});
  }
  // Mean cross-entropy of the targets y, int32 [B, T], that are not -100. Never holds all logits at once.
  Tensor loss(In x, In y, const Tensor& key_lengths = {}) const {
    return GPT::loss(x, y, {.key_lengths = key_lengths});
  }

 private:
  static BERTOptions not_causal(BERTOptions options) {
    options.causal = false;
    return options;
  }
};

// The head of BERT for pairs of texts (Devlin et al. 2018, section 3.1): whether the second text follows the first one
// in their source. The sum of its cross-entropy and that of hidden tokens is the loss of pre-training:
//
//   const Tensor h = bert.hidden(x, lengths, token_types);
//   const Tensor loss = bert.loss_of(h, hidden_tokens) + cross_entropy(head(h), other);  // int32 [B]: 1 if not next
struct NextSentence {
  Linear pooler;  // [width, width]
  Linear output;  // [2, width]

  // Weights are normal(0, 0.02).
  NextSentence(Index width, Rng& rng);
  // The vector of a whole input, tanh(pooler(the first position)): [B, T, width] -> [B, width].
  Tensor pooled(In hidden) const;
  // The logits of the classes "follows" and "is another text": [B, T, width] -> [B, 2].
  Tensor operator()(In hidden) const { return output(pooled(hidden)); }
  void members(auto&& visit) { visit("pooler", pooler), visit("output", output); }  // pooler, output
};

}  // namespace heed

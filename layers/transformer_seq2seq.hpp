// The Transformer of "Attention is all you need" (Vaswani et al. 2017) as a whole model, which translates: an encoder
// of the source, and a decoder that attends to it and writes the target.
//
// Example:
//
//   Rng rng(1);
//   TransformerSeq2SeqOptions options{.source_vocabulary = 20, .target_vocabulary = 22, .width = 16, .heads = 2};
//   options.encoder_layers = options.decoder_layers = 1;
//   const TransformerSeq2Seq model(options, rng, {.encoder = [](Index, Rng&) { return LinearAttention(); }});
//   Batch batch;
//   batch["source"] = Tensor::from<std::int32_t>({3, 7, 4, 9, 1, 0}, {2, 3});
//   batch["source_lengths"] = Tensor::from<std::int32_t>({3, 2});
//   batch.inputs = Tensor::from<std::int32_t>({20, 5, 20, 8}, {2, 2});
//   batch.targets = Tensor::from<std::int32_t>({5, 21, 8, 21}, {2, 2});
//   const Tensor loss = model.loss(batch);
//   DecodeState state = model.make_state(batch["source"], batch["source_lengths"]);
//   const Tensor logits = state.read(Tensor::from<std::int32_t>({20, 20}, {2, 1}));  // [2, 22], of the first words
#pragma once
#include <heed/data/batches.hpp>
#include <heed/layers/decoding.hpp>
#include <heed/layers/embedding.hpp>
#include <heed/layers/model_config.hpp>
#include <heed/layers/transformer.hpp>
#include <string>

namespace heed {

// The defaults are the paper's base model, but for `joined`, which needs vocabularies that are one.
struct TransformerSeq2SeqOptions {
  Index source_vocabulary = 0;
  Index target_vocabulary = 0;
  Index width = 512;
  Index heads = 8;
  Index hidden = 0;  // of the feed-forward parts; 0: their default
  Index encoder_layers = 6;
  Index decoder_layers = 6;
  // Of embeddings, after each part, and on weights of the attention where the mechanism has it.
  double dropout = 0.1;
  std::optional<double> attention_dropout = {};  // on those weights alone, where it is another
  FeedForwardKind activation = FeedForwardKind::relu;
  NormKind norm = NormKind::layer;
  // false: x = norm(x + part(x)), as in the paper; true: x = x + part(norm(x)), and a last norm.
  bool norm_first = false;
  bool bias = true;  // of linear layers and norms; the output has none
  PositionKind positions = PositionKind::sinusoidal;
  bool scaled_embedding = true;  // embeddings are multiplied by sqrt(width): section 3.4
  Index context = 1024;          // the most positions of a text: for learned positions, and mechanisms that must know
  Index relative_clip = 16;      // where positions are relative: as of GPTOptions
  bool joined = false;           // one embedding for source, target and output; the vocabularies are one
  bool tied = true;              // the output's weights are the target's embedding
  double label_smoothing = 0.1;  // of the loss while training: section 5.4
};

// Makes the mechanisms of the blocks: of the encoder's positions among themselves, of the decoder's, and of the
// decoder's on the encoder's.
struct TransformerSeq2SeqMechanisms {
  MechanismFactory encoder = softmax_mechanism;
  MechanismFactory decoder = softmax_mechanism;
  MechanismFactory cross = softmax_mechanism;
};

class TransformerSeq2Seq {
 public:
  Embedding source;                                                    // [source_vocabulary, width]
  std::optional<Embedding> target;                                     // [target_vocabulary, width], unless joined
  std::optional<LearnedPositions> source_positions, target_positions;  // [context, width]
  Transformer encoder, decoder;
  Parameter output;  // [target_vocabulary, width], unless tied or joined
  Dropout drop;

  // Weights as fairseq's Transformer has them (Ott et al. 2019), which the recipes of translation since are for:
  // projections uniform as Glorot and Bengio's, those of queries, keys and values divided by sqrt(2), embeddings
  // normal(0, 1 / sqrt(width)), biases 0. What a mechanism holds stays.
  //
  // Error for a mechanism that cannot stand where it is asked to: the encoder's must let positions see later ones and
  // leave padding out, the decoder's must be causal and have a decode state, and that between them must attend to
  // another sequence and leave padding out. The mechanisms are kept, for clone(): what they refer to must live as long.
  TransformerSeq2Seq(const TransformerSeq2SeqOptions& options, Rng& rng,
                     const TransformerSeq2SeqMechanisms& mechanisms = {});

  // The batch has "source", int32 [B, S], and "source_lengths", int32 [B], where it is padded, and `inputs`, int32
  // [B, T], what the decoder reads: a token that begins, and then the target's but the last. -> logits
  // [B, T, target_vocabulary]. Padding has no effect on the others; its own results mean nothing.
  Tensor operator()(const Batch& batch) const;
  // Mean cross-entropy of the batch's targets, int32 [B, T] or kIgnoreIndex; never holds all logits.
  Tensor loss(const Batch& batch) const;
  // What decoding begins with: the source, int32 [B, S], is read and projected here, once.
  DecodeState make_state(In source, const Tensor& source_lengths = {}) const;
  // How each position of the targets attends to the source in each layer of the decoder: [B, heads, T, S]. No gradient,
  // no dropout. Error where the mechanism has no weights.
  std::vector<Tensor> attention_weights(const Batch& batch) const;

  const TransformerSeq2SeqOptions& options() const { return options_; }
  const TransformerSeq2SeqMechanisms& mechanism_factory() const { return mechanisms_; }
  void members(MemberVisitor& visit);

 private:
  TransformerSeq2SeqOptions options_;
  TransformerSeq2SeqMechanisms mechanisms_;
  std::optional<SinusoidalPositions> sinusoids_;  // of the context; those of longer texts are made when they are read

  struct State;
  const Embedding& target_embedding() const { return target ? *target : source; }
  const Parameter& output_weight() const { return output.defined() ? output : target_embedding().weight; }
  void init_weights(Rng& rng);
  Tensor embed(In x, const Embedding& tokens, const std::optional<LearnedPositions>& learned, const Tensor& seen,
               const AttentionCall& call) const;
  Tensor encode(In source, const AttentionCall& call) const;
  Tensor embed_target(const Batch& batch) const;
  Tensor features(const Batch& batch) const;
};

// A whole model as one description: what a checkpoint says of it.
struct TransformerSeq2SeqConfig {
  TransformerSeq2SeqOptions options = {};
  std::string encoder_attention = "softmax";  // one of mechanism_names(false)
  std::string decoder_attention = "softmax";  // one of mechanism_names(true)
  std::string cross_attention = "softmax";    // one of memory_mechanism_names()
  // What these have beside their names; causal, memory, heads, head_size and context follow the options.
  MechanismOptions encoder_mechanism = {}, decoder_mechanism = {}, cross_mechanism = {};

  TransformerSeq2SeqMechanisms factory() const;  // Error as of mechanism_by_name()
  void fields(OptionFields& f);
};

}  // namespace heed

// The Transformer of "Attention is all you need" (Vaswani et al. 2017) for translation: an encoder for the source, and
// a decoder that attends to the encoded source and generates the target.
//
// Example:
//
//   Rng rng(1);
//   const TransformerSeq2Seq model({.source_vocabulary = 20,
//                                   .target_vocabulary = 22,
//                                   .blocks = {.layers = 1, .attention = {.width = 16, .heads = 2}}},
//                                  rng, {.encoder = [](Index, Rng&) { return LinearAttention(); }});
//   Batch batch;
//   batch["source"] = Tensor::from<std::int32_t>({3, 7, 4, 9, 1, 0}, {2, 3});
//   batch["source_lengths"] = Tensor::from<std::int32_t>({3, 2});
//   batch.inputs = Tensor::from<std::int32_t>({20, 5, 20, 8}, {2, 2});
//   batch.targets = Tensor::from<std::int32_t>({5, 21, 8, 21}, {2, 2});
//   const Tensor loss = model.loss(batch);
//   DecodeState state = model.make_state(batch["source"], batch["source_lengths"]);
//   const Tensor logits = state.read(Tensor::from<std::int32_t>({20, 20}, {2, 1}));  // [2, 22], for the first words
#pragma once
#include <heed/data/batches.hpp>
#include <heed/layers/decoding.hpp>
#include <heed/layers/model_config.hpp>
#include <heed/layers/token_input.hpp>
#include <heed/layers/transformer.hpp>
#include <string>

namespace heed {

// Options of TransformerSeq2Seq. Defaults are the paper's base model, except `joined`, which needs a common vocabulary.
struct TransformerSeq2SeqOptions {
  Index source_vocabulary = 0;     // number of tokens
  Index target_vocabulary = 0;     // number of tokens
  TransformerOptions blocks = {};  // of encoder and decoder; dropout also of embeddings. causal is not read
  Index decoder_layers = 0;        // 0: blocks.layers
  PositionKind positions = PositionKind::sinusoidal;  // see PositionKind
  bool scaled_embedding = true;  // multiplies embeddings by sqrt(width): section 3.4
  Index context = 1024;          // maximum length of a text, for learned positions and mechanisms that need it
  bool joined = false;           // one embedding for source, target and output; one vocabulary
  bool tied = true;              // the output weight is the target's embedding
  double label_smoothing = 0.1;  // of the loss, during training: section 5.4
};

// Factories of the mechanisms: self-attention of the encoder and of the decoder, and attention of the decoder to the
// encoded source.
struct TransformerSeq2SeqMechanisms {
  MechanismFactory encoder = softmax_mechanism;  // self-attention of the encoder
  MechanismFactory decoder = softmax_mechanism;  // self-attention of the decoder
  MechanismFactory cross = softmax_mechanism;    // attention of the decoder to the encoded source
};

// The Transformer for translation.
class TransformerSeq2Seq {
  TransformerSeq2SeqOptions options_;  // the first member, because the others are built from it
  TransformerSeq2SeqMechanisms mechanisms_;

 public:
  TokenInput source;             // tokens [source_vocabulary, width], positions [context, width]
  Transformer encoder, decoder;  // the decoder attends to the encoder's output
  TokenInput target;             // tokens [target_vocabulary, width], none if joined; positions [context, width]
  Parameter output;              // [target_vocabulary, width]; undefined if tied or joined

  // Initial values are those of fairseq's Transformer (Ott et al. 2019), which later translation recipes assume:
  // xavier_uniform_ for projections, divided by sqrt(2) for queries, keys and values; normal(0, 1 / sqrt(width)) for
  // embeddings; 0 for biases. Members of mechanisms keep their values.
  //
  // Throws Error for a mechanism that lacks a capability. The encoder's must attend to later positions and have a key
  // mask. The decoder's must be causal and have a decode state. The cross mechanism must attend to another sequence and
  // have a key mask. The factories are kept for clone(), so objects that they refer to must outlive the model.
  TransformerSeq2Seq(const TransformerSeq2SeqOptions& options, Rng& rng,
                     const TransformerSeq2SeqMechanisms& mechanisms = {});

  // Logits [B, T, target_vocabulary]. The batch has "source", int32 [B, S], and if padded "source_lengths", int32 [B].
  // Its `inputs`, int32 [B, T], are read by the decoder: a begin token, then the target tokens except the last. Padding
  // has no effect on other positions; results at padding are meaningless.
  Tensor operator()(const Batch& batch) const;
  // Mean cross-entropy of the batch's targets, int32 [B, T], or kIgnoreIndex. Never holds all logits at once.
  Tensor loss(const Batch& batch) const;
  // The initial state of decoding. Encodes and projects the source, int32 [B, S], once.
  DecodeState make_state(In source, const Tensor& source_lengths = {}) const;
  // How each target position attends to the source, per layer of the decoder: [B, heads, T, S], without dropout and
  // gradient. Throws Error if the mechanism has no weights.
  std::vector<Tensor> attention_weights(const Batch& batch) const;

  // The arguments of the constructor.
  const TransformerSeq2SeqOptions& options() const { return options_; }
  const TransformerSeq2SeqMechanisms& mechanism_factory() const { return mechanisms_; }
  void members(MemberVisitor& visit);  // source, target, source_positions, target_positions, encoder, decoder, output

 private:
  struct State;
  const Embedding& target_embedding() const { return target.tokens ? *target.tokens : *source.tokens; }
  const Parameter& output_weight() const { return output.defined() ? output : target_embedding().weight; }
  void init_weights(Rng& rng);
  Tensor encode(In source, const AttentionCall& call) const;
  Tensor embed_target(const Batch& batch) const;
  Tensor features(const Batch& batch) const;
};

// A TransformerSeq2Seq as a configuration for checkpoints.
struct TransformerSeq2SeqConfig {
  TransformerSeq2SeqOptions options = {};     // of the model
  std::string encoder_attention = "softmax";  // one of mechanism_names(false)
  std::string decoder_attention = "softmax";  // one of mechanism_names(true)
  std::string cross_attention = "softmax";    // one of memory_mechanism_names()
  // The mechanisms' options; causal, memory, heads, head_size, layers and context are set from `options`.
  MechanismOptions encoder_mechanism = {}, decoder_mechanism = {}, cross_mechanism = {};

  TransformerSeq2SeqMechanisms factory() const;  // throws Error as mechanism_by_name()
  void fields(OptionFields& f);                  // the JSON of the configuration
};

}  // namespace heed

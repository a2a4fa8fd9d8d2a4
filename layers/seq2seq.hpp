// Encoder-decoders of recurrent layers, which translate: with Bahdanau's attention, with Luong's, and without any.
//
// Example:
//
//   Rng rng(1);
//   const Seq2Seq model({.source_vocabulary = 20, .target_vocabulary = 22, .embedding = 8, .hidden = 16}, rng);
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
#include <heed/layers/attention/mechanism.hpp>
#include <heed/layers/decoding.hpp>
#include <heed/layers/embedding.hpp>
#include <heed/layers/model_config.hpp>
#include <heed/layers/recurrent.hpp>

namespace heed {

// Where the decoder, whose state is s_t and whose last word is y_(t-1), attends to the encoder's states:
//
//   none      not at all: of the source it has the encoder's last state alone     (Sutskever et al. 2014)
//             s_t = cell(y_(t-1), s_(t-1))                 output from s_t
//             with context_each_step:                                             (Cho et al. 2014)
//             s_t = cell([y_(t-1); c], s_(t-1))            output from [s_t; c; y_(t-1)]
//   bahdanau  before the cell, from the state before       (Bahdanau, Cho and Bengio 2015, A.1.2 and A.2.2)
//             c_t = attention(s_(t-1))   s_t = cell([y_(t-1); c_t], s_(t-1))   output from [s_t; c_t; y_(t-1)]
//   luong     after the cell, from the new state           (Luong, Pham and Manning 2015, equations 5 and 6)
//             s_t = cell(y_(t-1), s_(t-1))   c_t = attention(s_t)   h~_t = tanh(W_c [c_t; s_t])   output from h~_t
//             with input_feeding: s_t = cell([y_(t-1); h~_(t-1)], s_(t-1)), h~ zeros at first
enum class DecoderAttention { none, bahdanau, luong };

// What the decoder's first state is made of: of each layer the encoder's last one, both directions side by side,
// through tanh of a linear map (Bahdanau has the reverse direction alone), or as it is; or zeros, of attention alone.
enum class Bridge { linear, copy, zeros };

struct Seq2SeqOptions {
  Index source_vocabulary = 0;
  Index target_vocabulary = 0;
  Index embedding = 256;
  Index hidden = 512;  // of the decoder, and of the encoder's directions together
  Index layers = 1;    // of both
  RecurrentKind cell = RecurrentKind::gru;
  bool bidirectional = true;  // the encoder
  DecoderAttention attention = DecoderAttention::bahdanau;
  Index heads = 1;  // of the attention; they divide hidden
  bool context_each_step = false;
  bool input_feeding = false;
  Bridge bridge = Bridge::linear;
  // Of embeddings, between layers, before the output, and on weights of the attention where the mechanism has it.
  double dropout = 0;
  double label_smoothing = 0;  // of the loss while training
};

class Seq2Seq {
 public:
  Embedding source;  // [source_vocabulary, embedding]
  Embedding target;  // [target_vocabulary, embedding]
  Recurrent encoder;
  std::vector<Linear> bridges;                  // of each layer: to [states * hidden]
  Recurrent decoder;                            // reads [y; what joins it]
  std::optional<AttentionMechanism> attention;  // of queries s and keys and values of the encoder, [.., hidden / heads]
  std::optional<Linear> combine;                // W_c, [hidden, 2 hidden], of luong
  Linear output;                                // to [target_vocabulary]

  // `mechanism`, asked once, makes any mechanism that can attend to another sequence and leave padding out; none given:
  // additive attention for bahdanau, the general score for luong. Error for another one, with what it lacks.
  Seq2Seq(const Seq2SeqOptions& options, Rng& rng, const MechanismFactory& mechanism = {});

  // The batch has "source", int32 [B, S], and source_lengths where it is padded, and `inputs`, int32 [B, T], what the
  // decoder reads: a token of its own and then the target's words but the last. -> logits [B, T, target_vocabulary]
  Tensor operator()(const Batch& batch) const;
  // Mean cross-entropy of the batch's targets, int32 [B, T]; never holds all logits.
  Tensor loss(const Batch& batch) const;
  // What decoding begins with: the source is read here, once.
  DecodeState make_state(In source, const Tensor& source_lengths = {}) const;
  // How each position of the targets attended to the source, [B, heads, T, S], as the only one of a list. No gradient,
  // no dropout. Error where there is no attention, or it has no weights.
  std::vector<Tensor> attention_weights(const Batch& batch) const;

  const Seq2SeqOptions& options() const { return options_; }
  const MechanismFactory& mechanism_factory() const { return factory_; }
  void members(MemberVisitor& visit);

 private:
  Seq2SeqOptions options_;
  MechanismFactory factory_;
  Dropout drop_;

  struct Memory;   // what the encoder made of the source
  struct Current;  // what a step hands to the next one
  struct State;    // both, and the model
  Memory encode(In source, const Tensor& lengths) const;
  Tensor embed_target(In words) const;
  Tensor joined_sums(const Tensor& joined) const;
  Tensor attend(const Tensor& queries, const Memory& memory, const Tensor& first) const;
  Tensor step(const Tensor& words, const Tensor& sums, Current& now, const Memory& memory) const;
  Tensor features(In words, const Memory& memory, std::vector<Tensor>* queries) const;
  Tensor features_by_step(const Tensor& words, const Tensor& sums, const Memory& memory,
                          std::vector<Tensor>* queries) const;
};

// A whole model as one description: what a checkpoint says of it.
struct Seq2SeqConfig {
  Seq2SeqOptions options = {};
  std::string attention = "bahdanau";  // one of memory_mechanism_names(); not read where there is no attention
  MechanismOptions mechanism = {};     // whose heads and head_size follow the options; context: the longest source

  MechanismFactory factory() const;  // Error as of mechanism_by_name()
  void fields(OptionFields& f);
};

}  // namespace heed

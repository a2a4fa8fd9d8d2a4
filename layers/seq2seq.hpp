// Recurrent encoder-decoder models for translation: with Bahdanau's attention, with Luong's attention, or without
// attention.
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
//   const Tensor logits = state.read(Tensor::from<std::int32_t>({20, 20}, {2, 1}));  // [2, 22], for the first words
#pragma once
#include <heed/data/batches.hpp>
#include <heed/layers/attention/mechanism.hpp>
#include <heed/layers/decoding.hpp>
#include <heed/layers/embedding.hpp>
#include <heed/layers/model_config.hpp>
#include <heed/layers/recurrent.hpp>

namespace heed {

// Where the decoder attends to the encoder's states. s_t is the decoder's state, y_(t-1) the last word:
//
//   none      no attention; the decoder gets only the encoder's last state c      (Sutskever et al. 2014)
//             s_t = cell(y_(t-1), s_(t-1))                 output from s_t
//             with context_each_step:                                             (Cho et al. 2014)
//             s_t = cell([y_(t-1); c], s_(t-1))            output from [s_t; c; y_(t-1)]
//   bahdanau  before the cell, from the previous state     (Bahdanau, Cho and Bengio 2015, A.1.2 and A.2.2)
//             c_t = attention(s_(t-1))   s_t = cell([y_(t-1); c_t], s_(t-1))   output from [s_t; c_t; y_(t-1)]
//             with output_from_state:                                          output from s_t
//   luong     after the cell, from the new state           (Luong, Pham and Manning 2015, equations 5 and 6)
//             s_t = cell(y_(t-1), s_(t-1))   c_t = attention(s_t)   h~_t = tanh(W_c [c_t; s_t])   output from h~_t
//             with input_feeding: s_t = cell([y_(t-1); h~_(t-1)], s_(t-1)), with h~_0 = 0
enum class DecoderAttention { none, bahdanau, luong };

// The decoder's initial state. linear: per layer, tanh of a linear map of the encoder's last state, both directions
// concatenated. (Bahdanau uses the reverse direction only.) copy: the encoder's last state itself, as in Sutskever et
// al. 2014. zeros: 0, with attention only.
enum class Bridge { linear, copy, zeros };

// Options of Seq2Seq.
struct Seq2SeqOptions {
  Index source_vocabulary = 0;  // number of tokens
  Index target_vocabulary = 0;  // number of tokens
  Index embedding = 256;        // numbers per embedded token
  Index hidden = 512;  // size of the decoder's state; of the encoder's, both directions together
  Index layers = 1;    // of the encoder and of the decoder
  RecurrentKind cell = RecurrentKind::gru;  // of the encoder and of the decoder
  bool bidirectional = true;  // of the encoder
  DecoderAttention attention = DecoderAttention::bahdanau;  // see DecoderAttention
  Index heads = 1;                 // of the attention; must divide hidden
  bool context_each_step = false;  // without attention: see DecoderAttention::none
  bool input_feeding = false;      // with luong: see DecoderAttention::luong
  bool output_from_state = false;  // with bahdanau: see DecoderAttention::bahdanau
  Bridge bridge = Bridge::linear;  // see Bridge
  // Applied to embeddings, between layers, before the output, and to attention weights if the mechanism supports that.
  double dropout = 0;
  double label_smoothing = 0;  // of the loss, during training
};

// A recurrent encoder-decoder model.
class Seq2Seq {
 public:
  Embedding source;  // [source_vocabulary, embedding]
  Embedding target;  // [target_vocabulary, embedding]
  Recurrent encoder;                            // reads the embedded source
  std::vector<Linear> bridges;                  // per layer; to [states * hidden]
  Recurrent decoder;                            // input [y_(t-1); c_t or h~_(t-1)], as above
  std::optional<AttentionMechanism> attention;  // queries s; keys and values of the encoder, [.., hidden / heads]
  std::optional<Linear> combine;                // W_c, [hidden, 2 hidden]; luong
  Linear output;                                // to [target_vocabulary]

  // `mechanism` is called once. It may make any mechanism that supports attention to another sequence and key masks,
  // and has no inputs. Default: additive attention for bahdanau, the general score for luong. Throws Error for another
  // mechanism, with the reason, and for options that do not fit together.
  Seq2Seq(const Seq2SeqOptions& options, Rng& rng, const MechanismFactory& mechanism = {});

  // Logits [B, T, target_vocabulary]. The batch has "source", int32 [B, S], and if padded "source_lengths", int32 [B].
  // Its `inputs`, int32 [B, T], are read by the decoder: a begin token, then the target words except the last.
  Tensor operator()(const Batch& batch) const;
  // Mean cross-entropy of the batch's targets, int32 [B, T]. Never holds all logits at once.
  Tensor loss(const Batch& batch) const;
  // The initial state of decoding. Encodes the source, int32 [B, S], once.
  DecodeState make_state(In source, const Tensor& source_lengths = {}) const;
  // How each target position attends to the source: a list of one tensor [B, heads, T, S], without dropout and
  // gradient. Throws Error without attention, or if the mechanism has no weights.
  std::vector<Tensor> attention_weights(const Batch& batch) const;

  // The options, and the factory of the mechanism.
  const Seq2SeqOptions& options() const { return options_; }
  const MechanismFactory& mechanism_factory() const { return factory_; }
  void members(MemberVisitor& visit);  // source, target, encoder, bridges, decoder, attention, combine, output

 private:
  Seq2SeqOptions options_;
  MechanismFactory factory_;
  Dropout drop_;

  struct Memory;   // the encoded source
  struct Current;  // the data passed from step to step
  struct State;    // memory, current data and the model
  Memory encode(In source, const Tensor& lengths) const;
  Tensor embed_target(In words) const;
  Tensor joined_sums(const Tensor& joined) const;
  Tensor attend(const Tensor& queries, const Memory& memory, const Tensor& first) const;
  Tensor step(const Tensor& words, const Tensor& sums, Current& now, const Memory& memory) const;
  Tensor features(In words, const Memory& memory, std::vector<Tensor>* queries) const;
  Tensor features_by_step(const Tensor& words, const Tensor& sums, const Memory& memory,
                          std::vector<Tensor>* queries) const;
};

// A Seq2Seq as a configuration for checkpoints.
struct Seq2SeqConfig {
  Seq2SeqOptions options = {};         // of the model
  std::string attention = "bahdanau";  // one of memory_mechanism_names(); not read without attention
  MechanismOptions mechanism = {};  // heads and head_size are set from `options`; context: length of the longest source

  MechanismFactory factory() const;  // throws Error as mechanism_by_name()
  void fields(OptionFields& f);      // the JSON of the configuration
};

}  // namespace heed

// Convolutional encoder-decoder models for translation: ConvS2S, whose decoder attends to the source in each layer, and
// ByteNet, whose decoder reads the encoded source position by position.
//
// Example:
//
//   Rng rng(1);
//   const ConvS2S model({.source_vocabulary = 20, .target_vocabulary = 22, .width = 8, .hidden = 8, .layers = 2}, rng);
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
#include <heed/layers/convolution.hpp>
#include <heed/layers/decoding.hpp>
#include <heed/layers/model_config.hpp>
#include <heed/layers/token_input.hpp>
#include <vector>

namespace heed {

// ---- ConvS2S ----

// Options of ConvS2S. Defaults are the sizes of the paper's model for English to Romanian (section 5.1).
struct ConvS2SOptions {
  Index source_vocabulary = 0;  // number of tokens
  Index target_vocabulary = 0;  // number of tokens
  Index width = 512;            // of embeddings and of the encoder's result
  Index hidden = 512;           // channels of the convolutions
  Index kernel = 3;             // positions that a convolution reads; odd
  Index layers = 20;            // of the encoder
  Index decoder_layers = 0;     // 0: layers
  Index context = 1024;         // maximum number of tokens of a text, which have vectors of positions
  double dropout = 0.1;         // of embeddings, of the input of each convolution, and before the output
  double label_smoothing = 0;   // of the loss, during training
};

// A layer of the decoder of ConvS2S.
struct ConvS2SDecoderLayer {
  Conv1d conv;     // [2 hidden, hidden, kernel], causal
  Linear query;    // W_d, [width, hidden]
  Linear context;  // W_c, [hidden, width]

  void members(MemberVisitor& visit);  // conv, query, context
};

// Gehring, Auli, Grangier, Yarats and Dauphin, "Convolutional sequence to sequence learning", 2017. e and g are the
// embeddings of source and target plus a learned vector per position, GLU(a, b) = a * sigmoid(b), r = sqrt(1/2), and m
// is the number of tokens in the source:
//
//   encoder   h = W e;  per layer  h = r (h + GLU(conv(h)));  z = V h
//   decoder   h = W' g; per layer  u = GLU(conv(h)), causal;  d = r (W_d u + g);  a_ij = softmax over j of d_i . z_j
//             c_i = sqrt(m) * the sum over j of a_ij r (z_j + e_j);  h = r (h + r (u + W_c c));  logits = O (V' h)
//
// The sums are scaled by r as in the authors' program, fairseq, so that their variance is that of a summand. Not
// implemented: weight normalization, and smaller gradients of the encoder, to which the steps of Adam are invariant.
class ConvS2S {
  ConvS2SOptions options_;  // the first member, because the others are built from it

 public:
  TokenInput source, target;                 // tokens [vocabulary, width], positions [context, width]
  Linear encoder_in, encoder_out;            // W [hidden, width], V [width, hidden]
  std::vector<Conv1d> encoder;               // [2 hidden, hidden, kernel] each
  Linear decoder_in, decoder_out;            // W' [hidden, width], V' [width, hidden]
  std::vector<ConvS2SDecoderLayer> decoder;  // per layer
  Linear output;                             // O [target_vocabulary, width]

  // Initial values are those of section 3.5: normal(0, 0.1) for embeddings; normal(0, sqrt(p / n)) for linear maps and
  // normal(0, sqrt(4 p / n)) for convolutions of n numbers, of which dropout keeps the share p; 0 for biases. Throws
  // Error for options out of range.
  ConvS2S(const ConvS2SOptions& options, Rng& rng);

  // Logits [B, T, target_vocabulary]. The batch has "source", int32 [B, S], and if padded "source_lengths", int32 [B].
  // Its `inputs`, int32 [B, T], are read by the decoder: a begin token, then the target tokens except the last. Padding
  // has no effect on other positions; results at padding are meaningless.
  Tensor operator()(const Batch& batch) const;
  // Mean cross-entropy of the batch's targets, int32 [B, T], or kIgnoreIndex. Never holds all logits at once.
  Tensor loss(const Batch& batch) const;
  // The initial state of decoding. Encodes the source, int32 [B, S], once. A state keeps the last inputs of each
  // convolution, so the work per token does not grow with the text, except for the attention to the source.
  DecodeState make_state(In source, const Tensor& source_lengths = {}) const;
  // How each target position attends to the source, per layer of the decoder: [B, 1, T, S], without dropout and
  // gradient.
  std::vector<Tensor> attention_weights(const Batch& batch) const;

  const ConvS2SOptions& options() const { return options_; }  // with the number of decoder_layers
  void members(MemberVisitor& visit);  // source, target, source_positions, target_positions, then as declared

 private:
  struct State;
  void init_weights(Rng& rng);
  ProjectedMemory encode(In words, const Tensor& lengths) const;
  template <class Convolve>
  Tensor decode(In g, const ProjectedMemory& memory, const AttentionCall& of_source, const Convolve& convolve,
                std::vector<Tensor>* weights = nullptr) const;
  Tensor features(const Batch& batch, std::vector<Tensor>* weights = nullptr) const;
};

// ConvS2S as a configuration for checkpoints.
struct ConvS2SConfig {
  ConvS2SOptions options = {};  // of the model

  void fields(OptionFields& f);  // the JSON of the configuration
};

// ---- ByteNet ----

// Options of ByteNet. Defaults are those of the paper's translation model.
struct ByteNetOptions {
  Index source_vocabulary = 0;  // number of tokens
  Index target_vocabulary = 0;  // number of tokens
  Index width = 1600;           // of embeddings and between blocks: 2 d in the paper
  Index hidden = 800;           // channels of the convolutions: d
  Index kernel = 3;             // positions that a convolution reads; odd
  Index layers = 30;            // blocks of the encoder
  Index decoder_layers = 0;     // blocks of the decoder; 0: layers
  Index dilations = 5;          // the dilation of block i is 2^(i mod dilations)
  double length_ratio = 1.2;    // a of the paper's equation 2: the encoded source has ceil(a |s|) + b positions
  Index extra_length = 0;       // b
  double dropout = 0.1;         // of embeddings, of the result of each block, and before the output
  double label_smoothing = 0;   // of the loss, during training
};

// A residual block of ByteNet (figure 3, left): x + up(relu(norm(conv(relu(norm(down(relu(norm(x)))))))).
struct ByteNetBlock {
  LayerNorm norm1;  // [width]
  Linear down;      // [hidden, width]
  LayerNorm norm2;  // [hidden]
  Conv1d conv;      // [hidden, hidden, kernel], dilated; causal in the decoder
  LayerNorm norm3;  // [hidden]
  Linear up;        // [width, hidden]

  // The dilation of a block, and whether it is of a decoder.
  ByteNetBlock(const ByteNetOptions& options, Index dilation, bool causal, Rng& rng);
  void members(MemberVisitor& visit);  // as declared
};

// Kalchbrenner, Espeholt, Simonyan, van den Oord, Graves and Kavukcuoglu, "Neural machine translation in linear time",
// 2016. The decoder is stacked on the encoder: step t reads the last token and position t of the encoded source, which
// is a little longer than the source, and 0 after its end. So a token costs the same at any length.
//
//   s = relu(norm(encoder blocks(source tokens, followed by 0 up to ceil(a |s|) + b positions)))
//   h_t = embedding(y_(t-1)) + C s_t;  logits = output(relu(hidden(relu(norm(decoder blocks(h))))))
//
// Not implemented: embeddings of bags of n-grams, and multiplicative units, which the paper uses in language models.
class ByteNet {
  ByteNetOptions options_;  // the first member, because the others are built from it

 public:
  Embedding source, target;                    // [vocabulary, width]
  std::vector<ByteNetBlock> encoder, decoder;  // per block
  LayerNorm encoder_norm;                      // of the encoder's result
  Linear condition;                            // C, [width, width]
  LayerNorm decoder_norm;                      // of the decoder's result
  Linear hidden, output;                       // [width, width], [target_vocabulary, width]

  // Throws Error for options out of range.
  ByteNet(const ByteNetOptions& options, Rng& rng);

  Tensor operator()(const Batch& batch) const;  // as ConvS2S
  Tensor loss(const Batch& batch) const;        // as ConvS2S
  // The initial state of decoding. Encodes the source, int32 [B, S], once. A state keeps the last inputs of each
  // convolution, so each token costs the same.
  DecodeState make_state(In source, const Tensor& source_lengths = {}) const;
  std::vector<Tensor> attention_weights(const Batch& batch) const;  // throws Error: there is no attention

  const ByteNetOptions& options() const { return options_; }  // with the number of decoder_layers
  void members(MemberVisitor& visit);                         // as declared

 private:
  struct State;
  template <class Convolve>
  Tensor through(const std::vector<ByteNetBlock>& blocks, Tensor h, const Convolve& convolve) const;
  Tensor encode(In words, const Tensor& lengths) const;
  Tensor last_layers(const Tensor& h) const;
  Tensor features(const Batch& batch) const;
};

// A ByteNet as a configuration for checkpoints.
struct ByteNetConfig {
  ByteNetOptions options = {};  // of the model

  void fields(OptionFields& f);  // the JSON of the configuration
};

}  // namespace heed

// ConvS2S: construction, forward pass, decoding and configuration.
#include <cmath>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/losses.hpp>
#include <heed/autograd/shape_ops.hpp>
#include <heed/layers/attention/detail/row_lengths.hpp>
#include <heed/layers/attention/luong.hpp>
#include <heed/layers/conv_seq2seq.hpp>
#include <heed/layers/detail/conv_fields.hpp>

namespace heed {
namespace {

constexpr const char* kConvS2S = "ConvS2S";

ConvS2SOptions settled(ConvS2SOptions o) {
  if (o.decoder_layers == 0) o.decoder_layers = o.layers;
  require(o.layers > 0 && o.decoder_layers > 0 && o.kernel > 0 && o.kernel % 2 == 1, kConvS2S, ": layers is ", o.layers,
          ", decoder_layers is ", o.decoder_layers, " and kernel is ", o.kernel,
          "; layers and decoder_layers must be 1 or more, and kernel must be odd");
  require(o.dropout >= 0 && o.dropout < 1 && o.label_smoothing >= 0 && o.label_smoothing < 1, kConvS2S, ": dropout is ",
          o.dropout, " and label_smoothing is ", o.label_smoothing, "; both must be at least 0 and below 1");
  return o;
}

TokenInputOptions input_options(const ConvS2SOptions& o, Index vocabulary) {
  return {.vocabulary = vocabulary,
          .context = o.context,
          .width = o.width,
          .positions = PositionKind::learned,
          .dropout = o.dropout,
          .name = kConvS2S};
}

Conv1dLayerOptions of_encoder(Index kernel) { return {.padding = (kernel - 1) / 2}; }

// a * sigmoid(b) for x [..., 2 n], which is a, then b (Dauphin et al., "Language modeling with gated convolutional
// networks", 2017).
Tensor gated_linear_unit(const Tensor& x) {
  const Index n = x.dim(-1) / 2;
  return x.slice(-1, 0, n) * sigmoid(x.slice(-1, n, 2 * n));
}

// r (a + b): if both have variance 1 and are independent, so has the result.
Tensor scaled_sum(const Tensor& a, const Tensor& b) { return (a + b) * std::sqrt(0.5); }

// c [B, T, width], a mean over the source, times sqrt(m).
Tensor scaled_by_length(const Tensor& c, const ProjectedMemory& memory, const AttentionCall& of_source) {
  if (!of_source.key_lengths.defined()) return c * std::sqrt(static_cast<double>(memory.k.dim(2)));
  return c * sqrt(of_source.key_lengths.to(c.dtype())).view({c.dim(0), 1, 1});
}

}  // namespace

ConvS2S::ConvS2S(const ConvS2SOptions& o, Rng& rng)
    : options_(settled(o)),
      source(skip_init<TokenInput>(input_options(options_, o.source_vocabulary), rng)),
      target(skip_init<TokenInput>(input_options(options_, o.target_vocabulary), rng)),
      encoder_in(skip_init<Linear>(o.width, o.hidden, rng)),
      encoder_out(skip_init<Linear>(o.hidden, o.width, rng)),
      decoder_in(skip_init<Linear>(o.width, o.hidden, rng)),
      decoder_out(skip_init<Linear>(o.hidden, o.width, rng)),
      output(skip_init<Linear>(o.width, o.target_vocabulary, rng)) {
  for (Index i = 0; i < options_.layers; ++i)
    encoder.push_back(skip_init<Conv1d>(o.hidden, 2 * o.hidden, o.kernel, rng, of_encoder(o.kernel)));
  for (Index i = 0; i < options_.decoder_layers; ++i)
    decoder.push_back({skip_init<Conv1d>(o.hidden, 2 * o.hidden, o.kernel, rng, Conv1dLayerOptions{.causal = true}),
                       skip_init<Linear>(o.hidden, o.width, rng), skip_init<Linear>(o.width, o.hidden, rng)});
  init_weights(rng);
}

void ConvS2S::init_weights(Rng& rng) {
  const double kept = 1 - options_.dropout;
  for (const NamedParameter& p : named_parameters(*this)) {
    const double reads = static_cast<double>(p.parameter->numel() / p.parameter->dim(0));
    const bool after_dropout =
        p.name == "encoder_in.weight" || p.name == "decoder_in.weight" || p.name == "output.weight";
    if (p.name.ends_with(".bias"))
      init::constant_(*p.parameter, 0);
    else if (p.table)
      init::normal_(*p.parameter, rng, 0, 0.1);
    else if (p.parameter->rank() == 3)
      init::normal_(*p.parameter, rng, 0, std::sqrt(4 * kept / reads));
    else
      init::normal_(*p.parameter, rng, 0, std::sqrt((after_dropout ? kept : 1) / reads));
  }
}

// ---- Reading ----

// Keys z and values r (z + e), each [B, 1, S, width].
ProjectedMemory ConvS2S::encode(In words, const Tensor& lengths) const {
  const Tensor e = source(words);
  Tensor h = encoder_in(e);
  for (const Conv1d& conv : encoder) {
    const Tensor x = detail::rows_without_padding(kConvS2S, {source.drop(h), words.where()}, lengths);
    h = scaled_sum(h, gated_linear_unit(conv(x.t()).t()));
  }
  const Tensor z = encoder_out(h);
  return {z.unsqueeze(1), scaled_sum(z, e).unsqueeze(1)};
}

// The input of the output layer, [B, T, width], for embedded targets g. convolve(i, x) is the convolution of layer i.
template <class Convolve>
Tensor ConvS2S::decode(In g, const ProjectedMemory& memory, const AttentionCall& of_source, const Convolve& convolve,
                       std::vector<Tensor>* weights) const {
  Tensor h = decoder_in(g);
  for (std::size_t i = 0; i < decoder.size(); ++i) {
    const ConvS2SDecoderLayer& layer = decoder[i];
    const Tensor u = gated_linear_unit(convolve(i, target.drop(h)));
    const Tensor d = scaled_sum(layer.query(u), g).unsqueeze(1);  // [B, 1, T, width]
    if (weights != nullptr) weights->push_back(AttentionMechanism(LuongDot{}).weights(d, memory.k, of_source));
    const Tensor mean = LuongDot().apply({d, g.where()}, memory.k, memory.v, of_source).squeeze(1);
    const Tensor c = scaled_by_length(mean, memory, of_source);
    h = scaled_sum(h, scaled_sum(u, layer.context(c)));
  }
  return target.drop(decoder_out(h));
}

Tensor ConvS2S::features(const Batch& batch, std::vector<Tensor>* weights) const {
  require(batch.inputs.defined(), kConvS2S, ": the batch has no inputs; they must be int32 [batch, positions]");
  const AttentionCall of_source{.key_lengths = batch.get("source_lengths")};
  const ProjectedMemory memory = encode(batch.at("source"), of_source.key_lengths);
  const auto convolve = [&](std::size_t i, const Tensor& x) { return decoder[i].conv(x.t()).t(); };
  return decode(target(batch.inputs), memory, of_source, convolve, weights);
}

Tensor ConvS2S::operator()(const Batch& batch) const { return output(features(batch)); }

Tensor ConvS2S::loss(const Batch& batch) const {
  require(batch.inputs.shape() == batch.targets.shape(), kConvS2S, ": the inputs are ", batch.inputs,
          " and the targets are ", batch.targets, "; the shapes must be the same");
  return linear_cross_entropy(features(batch), output.weight, output.bias, batch.targets,
                              {.label_smoothing = is_training() ? options_.label_smoothing : 0});
}

std::vector<Tensor> ConvS2S::attention_weights(const Batch& batch) const {
  const NoTape no_tape;
  const Evaluation evaluation;
  std::vector<Tensor> weights;
  features(batch, &weights);
  return weights;
}

// ---- Decoding ----

struct ConvS2S::State {
  const ConvS2S* model;
  TransformerState source;          // without self-attention: one memory, that of all layers
  std::vector<Conv1dState> layers;  // of the decoder
  Tensor seen;                      // int32 [B]: tokens read

  Tensor read(const Tensor& tokens, const Tensor& lengths) {
    const Index rows = seen.dim(0);
    require(tokens.rank() == 2 && tokens.dtype() == DType::int32 && tokens.dim(0) == rows && tokens.dim(1) > 0,
            kConvS2S, ": tokens are ", tokens, "; they must be int32 [", rows, ", 1 or more]");
    const AttentionCall call{.key_lengths = lengths};
    const Tensor g = model->target(tokens, seen, call);
    const auto convolve = [&](std::size_t i, const Tensor& x) {
      return model->decoder[i].conv.decode(x, layers[i], lengths);
    };
    const Tensor y = model->decode(g, source.memory.front(), source.memory_call, convolve);
    seen = detail::lengths_after(kConvS2S, seen, tokens, call);
    return model->output(detail::last_of_rows(y, call));
  }
  State rows(const Tensor& indices) const {
    return {model, source.rows(indices), pick_rows(layers, indices), index_select(seen, 0, indices)};
  }
};

DecodeState ConvS2S::make_state(In words, const Tensor& lengths) const {
  const NoTape no_tape;
  const Evaluation evaluation;
  TransformerState memory{.memory = {encode(words, lengths)}, .memory_call = {.key_lengths = lengths}};
  memory.sources = Tensor::arange(words.dim(0));
  return State{this, std::move(memory), std::vector<Conv1dState>(decoder.size()),
               Tensor::zeros({words.dim(0)}, DType::int32)};
}

void ConvS2SDecoderLayer::members(MemberVisitor& visit) {
  visit("conv", conv);
  visit("query", query);
  visit("context", context);
}

void ConvS2S::members(MemberVisitor& visit) {
  visit("source", source.tokens);
  visit("target", target.tokens);
  visit("source_positions", source.positions);
  visit("target_positions", target.positions);
  visit("encoder_in", encoder_in);
  visit("encoder_out", encoder_out);
  visit("encoder", encoder);
  visit("decoder_in", decoder_in);
  visit("decoder_out", decoder_out);
  visit("decoder", decoder);
  visit("output", output);
}

// ---- Config ----

void ConvS2SConfig::fields(OptionFields& f) {
  detail::conv_fields(f, "convs2s", options, [&] { f("context", options.context, 1); });
}

}  // namespace heed

// The Transformer for translation: construction, forward pass, decoding and configuration.
#include <cmath>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/losses.hpp>
#include <heed/layers/attention/detail/row_lengths.hpp>
#include <heed/layers/transformer_seq2seq.hpp>

namespace heed {
namespace {

constexpr const char* kTransformer = "TransformerSeq2Seq";

TransformerSeq2SeqOptions settled(TransformerSeq2SeqOptions o) {
  if (o.decoder_layers == 0) o.decoder_layers = o.blocks.layers;
  require(o.blocks.layers >= 0 && o.decoder_layers > 0 && o.context > 0, kTransformer, ": layers is ", o.blocks.layers,
          ", decoder_layers is ", o.decoder_layers, " and context is ", o.context,
          "; layers must be 0 or more, decoder_layers and context 1 or more");
  require(!o.joined || o.source_vocabulary == o.target_vocabulary, kTransformer, ": source_vocabulary is ",
          o.source_vocabulary, " and target_vocabulary is ", o.target_vocabulary,
          "; they must be equal if joined is true");
  require(o.label_smoothing >= 0 && o.label_smoothing < 1, kTransformer, ": label_smoothing is ", o.label_smoothing,
          "; it must be at least 0 and below 1");
  o.blocks = o.blocks.or_else(0.1, FeedForwardKind::relu, false);
  return o;
}

TransformerOptions stack_options(const TransformerSeq2SeqOptions& o, bool decodes) {
  TransformerOptions blocks = o.blocks.with_positions(o.positions);
  if (decodes) blocks.layers = o.decoder_layers;
  blocks.attention.memory_width = decodes ? blocks.attention.width : 0;
  blocks.causal = decodes;
  return blocks;
}

TokenInputOptions input_options(const TransformerSeq2SeqOptions& o, std::optional<Index> vocabulary) {
  return {.vocabulary = vocabulary,
          .context = o.context,
          .width = o.blocks.attention.width,
          .positions = o.positions,
          .dropout = *o.blocks.dropout,
          .scaled = o.scaled_embedding,
          .beyond_context = true,
          .name = kTransformer};
}

enum class Place { encoder, decoder, cross };
constexpr const char* kPlaces[] = {"in the encoder", "in the decoder", "for cross-attention"};

// The factory with a check of the mechanisms' capabilities. Mechanisms get initial values, unlike the rest of a stack,
// which is built by skip_init() and initialised by init_weights().
MechanismFactory checked_factory(const MechanismFactory& make, Place place) {
  return [make, place](Index layer, Rng& rng) {
    const detail::SkipInit fills(false);
    AttentionMechanism mechanism = make(layer, rng);
    const AttentionCapabilities& can = mechanism.capabilities();
    const auto need = [&](bool has, const char* lack) {
      require(has, kTransformer, ": ", mechanism.name(), " attention cannot be used ", kPlaces[static_cast<int>(place)],
              ", as it ", lack, can.why.empty() ? "" : ": ", can.why);
    };
    need(place != Place::encoder || !can.causal_only, "is causal only");
    need(place != Place::decoder || can.causal, "has no causal form");
    need(place != Place::decoder || can.state, "has no decode state");
    need(place != Place::cross || can.attends_to_memory(), "cannot attend to another sequence");
    need(place == Place::decoder || can.key_mask, "cannot mask padding");
    return mechanism;
  };
}

}  // namespace

TransformerSeq2Seq::TransformerSeq2Seq(const TransformerSeq2SeqOptions& o, Rng& rng,
                                       const TransformerSeq2SeqMechanisms& mechanisms)
    : options_(settled(o)),
      mechanisms_(mechanisms),
      source(skip_init<TokenInput>(input_options(options_, o.source_vocabulary), rng)),
      encoder(skip_init<Transformer>(stack_options(options_, false), rng,
                                     checked_factory(mechanisms.encoder, Place::encoder))),
      decoder(skip_init<Transformer>(stack_options(options_, true), rng,
                                     checked_factory(mechanisms.decoder, Place::decoder),
                                     checked_factory(mechanisms.cross, Place::cross))),
      target(skip_init<TokenInput>(
          input_options(options_, o.joined ? std::optional<Index>() : std::optional<Index>(o.target_vocabulary)),
          rng)) {
  if (!o.joined && !o.tied) output = Parameter(Tensor::empty({o.target_vocabulary, o.blocks.attention.width}));
  init_weights(rng);
}

// In fairseq, queries, keys and values are separate projections [width, width], drawn by xavier_uniform_ with gain 1 /
// sqrt(2). Here they are rows of one weight, so the bound is computed for [width, width].
void TransformerSeq2Seq::init_weights(Rng& rng) {
  const double width = static_cast<double>(options_.blocks.attention.width),
               of_attention = std::sqrt(6 / (2 * width)) / std::sqrt(2.0);
  std::vector<Parameter*> relative;  // drawn last, so that all other values are the same with and without them
  for (const NamedParameter& p : named_parameters(*this)) {
    const auto ends = [&p](const char* with) { return p.name.ends_with(with); };
    if (p.name.find(".mechanism.") != std::string::npos || p.name.find("norm") != std::string::npos) continue;
    if (ends(".bias"))
      init::constant_(*p.parameter, 0);
    else if (ends("relative.weight"))
      relative.push_back(p.parameter);
    else if (ends(".qkv.weight") || ends(".q.weight") || ends(".kv.weight"))
      init::uniform_(*p.parameter, rng, -of_attention, of_attention);
    else if (ends(".proj.weight") || ends(".up.weight") || ends(".down.weight"))
      init::xavier_uniform_(*p.parameter, rng);
    else  // embeddings, learned positions, output
      init::normal_(*p.parameter, rng, 0, 1 / std::sqrt(width));
  }
  for (Parameter* p : relative) init::normal_(*p, rng, 0, 0.02);
  for (Transformer* stack : {&encoder, &decoder})
    for (TransformerBlock& block : stack->blocks) {
      block.attention.set_input_biases();
      if (block.cross) block.cross->set_input_biases();
    }
}

// ---- Reading ----

Tensor TransformerSeq2Seq::encode(In words, const AttentionCall& call) const {
  check(words.rank() == 2 && words.dtype() == DType::int32, words.where(), kTransformer, ": the source is ",
        words.tensor(), "; it must be int32 [batch, positions]");
  return encoder({source(words), words.where()}, call);
}

Tensor TransformerSeq2Seq::embed_target(const Batch& batch) const {
  const Tensor& words = batch.inputs;
  require(words.defined() && words.rank() == 2 && words.dtype() == DType::int32, kTransformer, ": the inputs are ",
          words, "; they must be int32 [batch, positions]");
  return target.embed(words, target_embedding());
}

// The input of the output layer, [B, T, width].
Tensor TransformerSeq2Seq::features(const Batch& batch) const {
  const AttentionCall of_source{.key_lengths = batch.get("source_lengths")};
  const Tensor memory = encode(batch.at("source"), of_source);
  return decoder(embed_target(batch), memory, {}, of_source);
}

Tensor TransformerSeq2Seq::operator()(const Batch& batch) const {
  return linear(features(batch), output_weight(), Tensor());
}

Tensor TransformerSeq2Seq::loss(const Batch& batch) const {
  require(batch.inputs.shape() == batch.targets.shape(), kTransformer, ": the inputs are ", batch.inputs,
          " and the targets are ", batch.targets, "; the shapes must be the same");
  return linear_cross_entropy(features(batch), output_weight(), Tensor(), batch.targets,
                              {.label_smoothing = is_training() ? options_.label_smoothing : 0});
}

std::vector<Tensor> TransformerSeq2Seq::attention_weights(const Batch& batch) const {
  const NoTape no_tape;
  const Evaluation evaluation;
  const AttentionCall of_source{.key_lengths = batch.get("source_lengths")};
  const Tensor memory = encode(batch.at("source"), of_source);
  return decoder.memory_weights(embed_target(batch), memory, {}, of_source);
}

// ---- Decoding ----

struct TransformerSeq2Seq::State {
  const TransformerSeq2Seq* model;
  TransformerState read_so_far;

  Tensor read(const Tensor& tokens, const Tensor& lengths) {
    const Index rows = read_so_far.memory.front().k.dim(0);
    require(tokens.rank() == 2 && tokens.dtype() == DType::int32 && tokens.dim(0) == rows && tokens.dim(1) > 0,
            kTransformer, ": tokens are ", tokens, "; they must be int32 [", rows, ", 1 or more]");
    const AttentionCall call{.key_lengths = lengths};
    const Tensor h = model->target.embed(tokens, model->target_embedding(), read_so_far.self.front().lengths(), call);
    const Tensor y = model->decoder.decode(h, read_so_far, call);
    return linear(detail::last_of_rows(y, call), model->output_weight(), Tensor());
  }
  State rows(const Tensor& indices) const { return {model, read_so_far.rows(indices)}; }
};

DecodeState TransformerSeq2Seq::make_state(In words, const Tensor& lengths) const {
  const NoTape no_tape;
  const Evaluation evaluation;
  const AttentionCall of_source{.key_lengths = lengths};
  return State{this, decoder.make_state(encode(words, of_source), of_source)};
}

void TransformerSeq2Seq::members(MemberVisitor& visit) {
  visit("source", source.tokens);
  visit("target", target.tokens);
  visit("source_positions", source.positions);
  visit("target_positions", target.positions);
  visit("encoder", encoder);
  visit("decoder", decoder);
  visit.table("output", output);
}

// ---- Config ----

static MechanismOptions mechanism_options(const TransformerSeq2SeqOptions& o, MechanismOptions m, Place place) {
  m.causal = place == Place::decoder;
  m.memory = place == Place::cross;
  m.heads = o.blocks.attention.heads, m.head_size = o.blocks.attention.head_size();
  m.value_size = o.blocks.attention.value_size;
  m.context = o.context;
  m.layers = place == Place::encoder || o.decoder_layers == 0 ? o.blocks.layers : o.decoder_layers;
  return m;
}

TransformerSeq2SeqMechanisms TransformerSeq2SeqConfig::factory() const {
  return {mechanism_by_name(encoder_attention, mechanism_options(options, encoder_mechanism, Place::encoder)),
          mechanism_by_name(decoder_attention, mechanism_options(options, decoder_mechanism, Place::decoder)),
          mechanism_by_name(cross_attention, mechanism_options(options, cross_mechanism, Place::cross))};
}

// The order of all versions, so that equal options are equal texts.
static const std::vector<std::string>& order_of_fields() {
  static const std::vector<std::string> names = {"model",
                                                 "source_vocabulary",
                                                 "target_vocabulary",
                                                 "width",
                                                 "heads",
                                                 "hidden",
                                                 "encoder_layers",
                                                 "decoder_layers",
                                                 "dropout",
                                                 "attention_dropout",
                                                 "activation",
                                                 "norm",
                                                 "norm_first",
                                                 "bias",
                                                 "positions",
                                                 "scaled_embedding",
                                                 "context",
                                                 "relative_clip",
                                                 "joined",
                                                 "tied",
                                                 "label_smoothing"};
  return names;
}

void TransformerSeq2SeqConfig::fields(OptionFields& f) {
  TransformerSeq2SeqOptions& o = options;
  std::string model = "transformer-seq2seq";
  f.order(order_of_fields());
  o.blocks = o.blocks.or_else(0.1, FeedForwardKind::relu, false);
  if (o.decoder_layers == 0) o.decoder_layers = o.blocks.layers;
  f("model", model);
  f.ensure(model == "transformer-seq2seq", "model", "transformer-seq2seq");
  f("source_vocabulary", o.source_vocabulary, 1), f("target_vocabulary", o.target_vocabulary, 1);
  f("positions", o.positions, position_kinds());
  o.blocks.fields(f, o.positions);
  f("encoder_layers", o.blocks.layers), f("decoder_layers", o.decoder_layers, 1);
  f("norm_first", *o.blocks.norm_first);
  f("scaled_embedding", o.scaled_embedding), f("context", o.context, 1);
  f("joined", o.joined), f("tied", o.tied), f("label_smoothing", o.label_smoothing);
  f.ensure(!o.joined || o.source_vocabulary == o.target_vocabulary, "target_vocabulary",
           std::to_string(o.source_vocabulary) + ", the source_vocabulary, as joined is true");
  const auto mechanism = [&](const std::string& prefix, std::string& name, MechanismOptions& m, Place place) {
    f(prefix + "attention", name);
    if (!f.reads()) m = settled_options(name, mechanism_options(o, m, place));
    mechanism_fields(f, name, m, prefix);
  };
  mechanism("encoder_", encoder_attention, encoder_mechanism, Place::encoder);
  mechanism("decoder_", decoder_attention, decoder_mechanism, Place::decoder);
  mechanism("cross_", cross_attention, cross_mechanism, Place::cross);
}

}  // namespace heed

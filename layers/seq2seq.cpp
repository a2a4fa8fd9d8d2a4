// Recurrent encoder-decoder models: construction, encoder, decoder, decoding and configuration.
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/losses.hpp>
#include <heed/autograd/shape_ops.hpp>
#include <heed/layers/attention/luong.hpp>
#include <heed/layers/seq2seq.hpp>

namespace heed {
namespace {

// Whether the first cell of the decoder has inputs in addition to the last word.
bool joins(const Seq2SeqOptions& o) {
  switch (o.attention) {
    case DecoderAttention::none: return o.context_each_step;
    case DecoderAttention::bahdanau: return true;
    default: return o.input_feeding;
  }
}

// Width of the input of the output layer.
Index feature_width(const Seq2SeqOptions& o) {
  const bool all = (o.attention == DecoderAttention::bahdanau && !o.output_from_state) || o.context_each_step;
  return all ? 2 * o.hidden + o.embedding : o.hidden;
}

RecurrentOptions encoder_options(const Seq2SeqOptions& o) {
  const Index directions = o.bidirectional ? 2 : 1;
  require(o.hidden > 0 && o.hidden % directions == 0 && o.embedding > 0, "Seq2Seq: hidden is ", o.hidden,
          " and embedding is ", o.embedding,
          "; both must be 1 or more, and hidden must be even if the encoder is bidirectional");
  return {.input = o.embedding,
          .hidden = o.hidden / directions,
          .layers = o.layers,
          .bidirectional = o.bidirectional,
          .dropout = o.dropout};
}

RecurrentOptions decoder_options(const Seq2SeqOptions& o) {
  return {
      .input = o.embedding + (joins(o) ? o.hidden : 0), .hidden = o.hidden, .layers = o.layers, .dropout = o.dropout};
}

// Throws Error for options that do not fit the kind of attention.
void check_decoder(const Seq2SeqOptions& o) {
  const bool attends = o.attention != DecoderAttention::none;
  require(attends || o.bridge != Bridge::zeros, "Seq2Seq: attention is none and bridge is zeros, so the decoder ",
          "would not depend on the source; bridge must be linear or copy");
  require(!o.input_feeding || o.attention == DecoderAttention::luong,
          "Seq2Seq: input_feeding requires luong attention");
  require(!o.output_from_state || o.attention == DecoderAttention::bahdanau,
          "Seq2Seq: output_from_state requires bahdanau attention");
  require(!o.context_each_step || !attends, "Seq2Seq: context_each_step requires a decoder without attention");
}

}  // namespace

struct Seq2Seq::Memory {
  Tensor keys, values;         // for attention: mapped keys; values, which are also the keys, [B, heads, S, size]
  AttentionCall call;          // key_lengths
  Tensor last;                 // [B, hidden]: c of context_each_step
  Tensor joined;               // the part of the first cell's sums computed from c
  std::vector<Tensor> states;  // initial states of the decoder

  void members(MemberVisitor& visit) {
    visit.buffer("keys", keys), visit.buffer("values", values), visit("call", call);
    visit.buffer("last", last), visit.buffer("joined", joined), visit.buffer("states", states);
  }
};

struct Seq2Seq::Current {
  explicit Current(const Memory& memory)
      : states(memory.states), position(Tensor::zeros({states[0].dim(0)}, DType::int32)) {}

  std::vector<Tensor> states;
  Tensor fed;         // h~ of input feeding
  Tensor position;    // int32 [B]: position of the next word
  Tensor query = {};  // a result of step(): its query

  void members(MemberVisitor& visit) {
    visit.buffer("states", states), visit.buffer("fed", fed), visit.buffer("position", position);
  }
};

struct Seq2Seq::State {
  const Seq2Seq* model;
  Memory memory;
  Current now;

  Tensor read(const Tensor& tokens, const Tensor& lengths);
  void members(MemberVisitor& visit) { visit("memory", memory), visit("now", now); }
};

Seq2Seq::Seq2Seq(const Seq2SeqOptions& o, Rng& rng, const MechanismFactory& mechanism)
    : source(o.source_vocabulary, o.embedding, rng),
      target(o.target_vocabulary, o.embedding, rng),
      encoder(o.cell, encoder_options(o), rng),
      decoder(o.cell, decoder_options(o), rng),
      output(feature_width(o), o.target_vocabulary, rng),
      options_(o),
      factory_(mechanism),
      drop_{o.dropout} {
  const bool attends = o.attention != DecoderAttention::none;
  require(o.heads > 0 && o.hidden % o.heads == 0, "Seq2Seq: heads is ", o.heads, " and hidden is ", o.hidden,
          "; heads must be 1 or more and divide hidden");
  check_decoder(o);
  if (o.bridge == Bridge::linear)
    for (Index i = 0; i < o.layers; ++i) {
      const Index width = recurrent_states(o.cell) * o.hidden;
      bridges.emplace_back(width, width, rng);
    }
  if (!attends) return;
  const Index size = o.hidden / o.heads;
  if (mechanism)
    attention.emplace(mechanism(0, rng));
  else if (o.attention == DecoderAttention::bahdanau)
    attention.emplace(BahdanauAttention(o.heads, size, rng));
  else
    attention.emplace(LuongGeneral(o.heads, size, rng));
  const AttentionCapabilities& can = attention->capabilities();
  const std::string why = can.why.empty() ? "" : ": " + can.why;
  require(can.attends_to_memory(), "Seq2Seq: ", attention->name(), " attention cannot attend to another sequence", why);
  require(can.key_mask, "Seq2Seq: ", attention->name(), " attention cannot mask padding", why);
  require(attention->inputs().empty(), "Seq2Seq: ", attention->name(),
          " attention takes inputs in addition to queries, keys and values, which a decoder does not compute");
  if (o.attention == DecoderAttention::luong)
    combine.emplace(2 * o.hidden, o.hidden, rng, LinearOptions{.bias = false});
}

// ---- The source ----

Seq2Seq::Memory Seq2Seq::encode(In words, const Tensor& lengths) const {
  const Seq2SeqOptions& o = options_;
  check(words.rank() == 2 && words.dtype() == DType::int32, words.where(), "Seq2Seq: the source is ", words.tensor(),
        "; it must be int32 [batch, positions]");
  const RecurrentOutput encoded = encoder({drop_(source(words)), words.where()}, {.lengths = lengths});
  Memory m;
  m.call = {.key_lengths = lengths, .dropout = o.dropout};
  if (attention && !attention->capabilities().dropout) m.call.dropout = 0;
  const std::size_t directions = static_cast<std::size_t>(encoder.directions());
  const auto last_of = [&](Index layer) {  // both directions concatenated: h of both, then c of both
    const std::size_t first = static_cast<std::size_t>(layer) * directions;
    if (directions == 1) return encoded.states[first];
    const Tensor &forward = encoded.states[first], &reverse = encoded.states[first + 1];
    std::vector<Tensor> parts;
    for (Index s = 0; s < recurrent_states(o.cell); ++s)
      for (const Tensor* x : {&forward, &reverse})
        parts.push_back(x->slice(1, s * o.hidden / 2, (s + 1) * o.hidden / 2));
    return concatenate(parts, 1);
  };
  for (Index i = 0; i < o.layers; ++i) {
    if (o.bridge == Bridge::zeros)
      m.states.push_back(decoder.zero_states(words.dim(0))[0]);
    else if (o.bridge == Bridge::copy)
      m.states.push_back(last_of(i));
    else
      m.states.push_back(tanh(bridges[static_cast<std::size_t>(i)](last_of(i))));
  }
  if (attention) {
    m.values = split_heads(encoded.y, o.heads);
    m.keys = attention->map_keys({m.values, words.where()}, m.call);
  } else if (o.context_each_step) {
    m.last = last_of(o.layers - 1).slice(1, 0, o.hidden);
    m.joined = joined_sums(m.last);
  }
  return m;
}

// ---- The target ----

Tensor Seq2Seq::embed_target(In words) const {
  check(words.rank() == 2 && words.dtype() == DType::int32, words.where(), "Seq2Seq: the inputs are ", words.tensor(),
        "; they must be int32 [batch, positions]");
  return drop_(target(words));
}

// The part of the first cell's sums computed from the inputs other than the word.
Tensor Seq2Seq::joined_sums(const Tensor& joined) const {
  const Parameter& w = decoder.cells[0].weight_ih;
  return linear(joined, w.slice(1, options_.embedding, w.dim(1)), Tensor());
}

// Queries [B, T, hidden] -> contexts [B, T, hidden]. `first`: position of each row's first query; undefined: 0.
Tensor Seq2Seq::attend(const Tensor& queries, const Memory& memory, const Tensor& first) const {
  AttentionCall call = memory.call;
  call.first_query = first;
  return merge_heads(attention->apply_mapped(split_heads(queries, options_.heads), memory.keys, memory.values, call));
}

// One step from a word [B, embedding] and its part of the first cell's sums. Returns the input of the output layer, [B,
// features].
Tensor Seq2Seq::step(const Tensor& word, const Tensor& word_sums, Current& now, const Memory& memory) const {
  const auto query_by = [&](const Tensor& state) {
    now.query = decoder.cells.back().h(state);
    return attend(now.query.unsqueeze(1), memory, now.position).select(1, 0);
  };
  Tensor sums = word_sums, context = memory.last;
  if (options_.attention == DecoderAttention::bahdanau) {
    context = query_by(now.states.back());
    sums = sums + joined_sums(context);
  } else if (memory.joined.defined()) {
    sums = sums + memory.joined;
  } else if (options_.input_feeding && now.fed.defined()) {
    sums = sums + joined_sums(now.fed);
  }
  const Tensor h = decoder.step_from(sums, now.states);
  if (options_.attention != DecoderAttention::luong) {
    now.position = now.position + 1;
    return context.defined() && !options_.output_from_state ? concatenate({h, context, word}, 1) : h;
  }
  const Tensor attended = tanh((*combine)(concatenate({query_by(now.states.back()), h}, 1)));
  now.position = now.position + 1;
  if (options_.input_feeding) now.fed = attended;
  return attended;
}

Tensor Seq2Seq::features_by_step(const Tensor& words, const Tensor& sums, const Memory& memory,
                                 std::vector<Tensor>* queries) const {
  const WeightReuse reuse;
  Current now(memory);
  std::vector<Tensor> all;
  for (Index t = 0; t < words.dim(1); ++t) {
    all.push_back(step(words.select(1, t), sums.select(1, t), now, memory));
    if (queries != nullptr) queries->push_back(now.query);
  }
  return stack(all, 1);
}

// The input of the output layer, [B, T, features]. If no step needs the attention result of the step before, the cell
// processes all steps in one call, and all positions attend in one call.
Tensor Seq2Seq::features(In inputs, const Memory& memory, std::vector<Tensor>* queries) const {
  const Seq2SeqOptions& o = options_;
  const Index rows = memory.states[0].dim(0);
  check(inputs->defined() && inputs.rank() == 2 && inputs.dim(0) == rows, inputs.where(), "Seq2Seq: the inputs are ",
        inputs.tensor(), " and the source has ", rows, " rows; they must be int32 [", rows, ", positions]");
  const Tensor words = embed_target(inputs);
  const RecurrentCell& first = decoder.cells[0];
  const Tensor of_words = joins(o) ? first.weight_ih.slice(1, 0, o.embedding) : Tensor();
  Tensor sums = of_words.defined() ? linear({words, inputs.where()}, of_words, first.bias_ih) : first.sums(words);
  if (words.dim(1) == 0) return Tensor::zeros({words.dim(0), 0, feature_width(o)}, words.dtype());
  if (o.attention == DecoderAttention::bahdanau || o.input_feeding)
    return features_by_step(words, sums, memory, queries);
  if (memory.joined.defined()) sums = sums + memory.joined.unsqueeze(1);
  const Tensor h = decoder.run_from(sums, {.states = memory.states}).y;
  if (o.attention == DecoderAttention::luong) {
    if (queries != nullptr)
      for (Index t = 0; t < h.dim(1); ++t) queries->push_back(h.select(1, t));
    return tanh((*combine)(concatenate({attend(h, memory, {}), h}, 2)));
  }
  if (!o.context_each_step) return h;
  return concatenate({h, memory.last.unsqueeze(1).expand(h.shape()), words}, 2);
}

Tensor Seq2Seq::operator()(const Batch& batch) const {
  return output(drop_(features(batch.inputs, encode(batch.at("source"), batch.get("source_lengths")), nullptr)));
}

Tensor Seq2Seq::loss(const Batch& batch) const {
  require(batch.inputs.shape() == batch.targets.shape(), "Seq2Seq: the inputs are ", batch.inputs,
          " and the targets are ", batch.targets, "; the shapes must be the same");
  const Tensor h = drop_(features(batch.inputs, encode(batch.at("source"), batch.get("source_lengths")), nullptr));
  return linear_cross_entropy(h, output.weight, output.bias, batch.targets,
                              {.label_smoothing = is_training() ? options_.label_smoothing : 0});
}

std::vector<Tensor> Seq2Seq::attention_weights(const Batch& batch) const {
  require(attention.has_value(), "Seq2Seq: the model has no attention, so it has no attention weights");
  const NoTape no_tape;
  const Evaluation evaluation;
  const Memory memory = encode(batch.at("source"), batch.get("source_lengths"));
  std::vector<Tensor> queries;
  features(batch.inputs, memory, &queries);
  return {attention->weights(split_heads(stack(queries, 1), options_.heads), memory.values, memory.call)};
}

// ---- Decoding ----

DecodeState Seq2Seq::make_state(In words, const Tensor& lengths) const {
  const NoTape no_tape;
  const Evaluation evaluation;
  Memory memory = encode(words, lengths);
  Current now(memory);
  return State{this, std::move(memory), std::move(now)};
}

Tensor Seq2Seq::State::read(const Tensor& tokens, const Tensor& lengths) {
  const Tensor words = model->embed_target(tokens);
  check(words.dim(0) == memory.states[0].dim(0) && words.dim(1) > 0, Where::current(), "Seq2Seq: tokens are ", tokens,
        "; they must be int32 [", memory.states[0].dim(0), ", 1 or more]");
  const RecurrentCell& first = model->decoder.cells[0];
  const bool joined = joins(model->options_);
  const Tensor w = joined ? first.weight_ih.slice(1, 0, model->options_.embedding) : Tensor();
  const WeightReuse reuse;
  Tensor last;
  for (Index t = 0; t < words.dim(1); ++t) {
    const Tensor word = words.select(1, t), sums = joined ? linear(word, w, first.bias_ih) : first.sums(word);
    Current next = now;
    Tensor features = model->step(word, sums, next, memory);
    if (lengths.defined() && t > 0) {  // rows that have ended keep their state
      const Tensor goes_on = lengths > t;
      const auto keep = [&](Tensor& x, const Tensor& before) {
        if (x.defined() && before.defined()) x = where(x.rank() == 1 ? goes_on : goes_on.unsqueeze(1), x, before);
      };
      const std::vector<NamedBuffer> after = named_buffers(next), before = named_buffers(now);
      for (std::size_t i = 0; i < after.size(); ++i) keep(*after[i].buffer, *before[i].buffer);
      keep(features, last);
    }
    now = next;
    last = features;
  }
  return model->output(last);
}

void Seq2Seq::members(MemberVisitor& visit) {
  visit("source", source);
  visit("target", target);
  visit("encoder", encoder);
  visit("bridges", bridges);
  visit("decoder", decoder);
  visit("attention", attention);
  visit("combine", combine);
  visit("output", output);
}

// ---- Config ----

static MechanismOptions mechanism_options(const Seq2SeqConfig& config) {
  MechanismOptions o = config.mechanism;
  o.memory = true;
  o.heads = config.options.heads;
  if (o.heads > 0) o.head_size = config.options.hidden / o.heads;
  return o;
}

MechanismFactory Seq2SeqConfig::factory() const {
  if (options.attention == DecoderAttention::none) return {};
  return mechanism_by_name(attention, mechanism_options(*this));
}

void Seq2SeqConfig::fields(OptionFields& f) {
  Seq2SeqOptions& o = options;
  std::string model = "seq2seq";
  f("model", model);
  f.ensure(model == "seq2seq", "model", "seq2seq");
  f("source_vocabulary", o.source_vocabulary, 1), f("target_vocabulary", o.target_vocabulary, 1);
  f("embedding", o.embedding, 1), f("hidden", o.hidden, 1), f("layers", o.layers, 1);
  f("cell", o.cell,
    {{"rnn", RecurrentKind::rnn_tanh},
     {"rnn-relu", RecurrentKind::rnn_relu},
     {"gru", RecurrentKind::gru},
     {"gru-original", RecurrentKind::gru_original},
     {"lstm", RecurrentKind::lstm}});
  f("bidirectional", o.bidirectional), f("heads", o.heads, 1);
  f("decoder_attention", o.attention,
    {{"none", DecoderAttention::none}, {"bahdanau", DecoderAttention::bahdanau}, {"luong", DecoderAttention::luong}});
  f("context_each_step", o.context_each_step), f("input_feeding", o.input_feeding);
  f.optional("output_from_state", o.output_from_state);
  f("bridge", o.bridge, {{"linear", Bridge::linear}, {"copy", Bridge::copy}, {"zeros", Bridge::zeros}});
  f("dropout", o.dropout), f("label_smoothing", o.label_smoothing);
  f.ensure(o.hidden % o.heads == 0, "heads", "a divisor of hidden, " + std::to_string(o.hidden));
  if (o.attention == DecoderAttention::none) return;
  f("attention", attention);
  f.optional("context", mechanism.context, 1);
  if (!f.reads()) mechanism = settled_options(attention, mechanism_options(*this));
  mechanism_fields(f, attention, mechanism);
}

}  // namespace heed

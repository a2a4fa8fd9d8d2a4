// Small encoder-decoder Transformers, and batches for these and other translation models.
#pragma once
#include <heed/autograd/tape.hpp>
#include <heed/layers/transformer_seq2seq.hpp>
#include <map>
#include <string>

#include "tests/layers/prompts.hpp"
#include "tests/reference/stored.hpp"
#include "tests/support.hpp"

namespace heed::test {

inline const StoredCases& stored_transformers() { return stored_cases("transformer_seq2seq_torch.json"); }

// The options of the models in the stored reference.
inline std::map<std::string, TransformerSeq2SeqOptions> stored_options() {
  const TransformerSeq2SeqOptions paper = {
      .source_vocabulary = 7,
      .target_vocabulary = 8,
      .blocks = {.layers = 2, .attention = {.width = 4, .heads = 2}, .hidden = 6, .dropout = 0}};
  TransformerSeq2SeqOptions first = paper, joined = paper;
  first.blocks.norm_first = true, first.blocks.activation = FeedForwardKind::gelu,
  first.positions = PositionKind::learned;
  first.context = 5, first.scaled_embedding = false, first.tied = false;
  joined.joined = true, joined.target_vocabulary = 7, joined.blocks.attention.bias = false;
  return {{"as in the paper", paper},
          {"norms first, learned positions, untied", first},
          {"joined, without biases", joined}};
}

// Two pairs. The second is padded in source and target.
inline Batch stored_pairs() {
  Batch b;
  const auto ids = [](const char* name) { return stored_transformers().inputs.at(name).to(DType::int32); };
  b["source"] = ids("source"), b["source_lengths"] = ids("source_lengths");
  b.inputs = ids("inputs"), b.targets = ids("targets");
  return b;
}

inline TransformerSeq2SeqOptions small(PositionKind positions = PositionKind::sinusoidal) {
  return {.source_vocabulary = 20,
          .target_vocabulary = 22,
          .blocks = {.layers = 2, .attention = {.width = 16, .heads = 2}, .hidden = 24, .dropout = 0},
          .positions = positions,
          .context = 9};
}

inline TransformerSeq2Seq model_of(const TransformerSeq2SeqOptions& o,
                                   const TransformerSeq2SeqMechanisms& mechanisms = {}) {
  Rng rng(5);
  return TransformerSeq2Seq(o, rng, mechanisms);
}

inline constexpr Index kTimes = 6;

// Random sentences. The last rows are padded with the last word of each vocabulary, which occurs nowhere else.
inline Batch random_sentences(Index batch = 5, Index S = 7) {
  Batch b;
  b["source"] = random_ids({batch, S}, 19, 1);
  b.inputs = random_ids({batch, kTimes}, 21, 2);
  b.targets = random_ids({batch, kTimes}, 21, 3);
  Tensor lengths = Tensor::zeros({batch}, DType::int32);
  for (Index i = 0; i < batch; ++i) {
    lengths.ptr<std::int32_t>()[i] = static_cast<std::int32_t>(S - i % 4);
    b["source"].select(0, i).slice(0, S - i % 4, S).fill_(19);
    b.inputs.select(0, i).slice(0, kTimes - i % 3, kTimes).fill_(21);
    b.targets.select(0, i).slice(0, kTimes - i % 3, kTimes).fill_(kIgnoreIndex);
  }
  b["source_lengths"] = lengths;
  return b;
}
inline Index target_length(Index row) { return kTimes - row % 3; }

// One pair of the batch, without padding.
inline Batch pair_alone(const Batch& b, Index i) {
  Batch one;
  const Index S = b.at("source_lengths").ptr<std::int32_t>()[i], T = target_length(i);
  one["source"] = b.at("source").slice(0, i, i + 1).slice(1, 0, S);
  one.inputs = b.inputs.slice(0, i, i + 1).slice(1, 0, T);
  one.targets = b.targets.slice(0, i, i + 1).slice(1, 0, T);
  return one;
}

// The loss and all gradients.
template <class M>
std::vector<Tensor> loss_and_gradients(M& model, const Batch& b) {
  for (const NamedParameter& p : named_parameters(model)) p.parameter->zero_grad();
  manual_seed(3);
  Tape tape;
  const Tensor loss = model.loss(b);
  tape.backward(loss);
  std::vector<Tensor> list = {loss.detach()};
  for (const NamedParameter& p : named_parameters(model)) list.push_back(p.parameter->grad().clone());
  return list;
}

// Padding changes no logits, loss or gradient. `source_table` is the embedding of the source, [words, width].
template <class M>
void check_padding(M& model, const Parameter& source_table) {
  const Batch b = random_sentences();
  const Tensor whole = model(b);
  double sum = 0;
  Index counted = 0;
  for (Index i = 0; i < 5; ++i) {
    const Index T = target_length(i);
    CHECK(close(whole.select(0, i).slice(0, 0, T), model(pair_alone(b, i))[0], 1e-5, 1e-5));
    sum += model.loss(pair_alone(b, i)).item() * static_cast<double>(T);
    counted += T;
  }
  CHECK(model.loss(b).item() == doctest::Approx(sum / static_cast<double>(counted)).epsilon(1e-6));
  // Word 19 occurs in padding only.
  const std::vector<Tensor> before = loss_and_gradients(model, b);
  CHECK(same_bits(square(source_table.grad()[19]), Tensor::zeros({source_table.dim(1)})));
  // Other words in padding do not change any gradient, except for the sign of zeros in those of embeddings.
  Batch other = random_sentences();
  for (Index i = 0; i < 5; ++i) {
    other["source"].select(0, i).slice(0, 7 - i % 4, 7).fill_(3);
    other.inputs.select(0, i).slice(0, target_length(i), kTimes).fill_(4);
  }
  const std::vector<Tensor> after = loss_and_gradients(model, other);
  for (std::size_t i = 0; i < before.size(); ++i) CHECK(close(before[i], after[i], 0, 0));
}

// A model in float64 reads one word at a time, or prompts, and gives the logits of all words at once. A copy of its
// state is separate.
template <class M>
void check_reading(const M& model) {
  const Batch b = random_sentences();
  const Tensor whole = model(b);
  const auto word = [&](Index t) { return b.inputs.slice(1, t, t + 1); };
  DecodeState state = model.make_state(b.at("source"), b.at("source_lengths"));
  for (Index t = 0; t < kTimes; ++t) CHECK(close(state.read(word(t)), whole.select(1, t), 1e-12, 1e-12));
  check_prompts(model, b, 1e-12);
  DecodeState began = model.make_state(b.at("source"), b.at("source_lengths")), copy = began;
  CHECK(same_bits(copy.read(word(0)), began.read(word(0))));
  copy.read(word(1));
  CHECK(!same_bits(copy.read(word(2)), began.read(word(2))));
  // Rows may be picked before the first word.
  DecodeState swapped = model.make_state(b.at("source"), b.at("source_lengths"));
  swapped = swapped.rows(Tensor::from<std::int32_t>({4, 0}));
  const Tensor first = swapped.read(concatenate({word(0).slice(0, 4, 5), word(0).slice(0, 0, 1)}, 0));
  CHECK(close(first[0], whole.select(0, 4)[0], 1e-12, 1e-12));
  CHECK(close(first[1], whole.select(0, 0)[0], 1e-12, 1e-12));
}

// A configuration with this mechanism at one of the three places.
inline TransformerSeq2SeqConfig config_with(const std::string& place, const std::string& name) {
  TransformerSeq2SeqConfig config{.options = small()};
  const MechanismOptions m{.window = 4, .stride = 2, .top_k = 3, .rows = 4, .rounds = 2, .buckets = 2, .radius = 2};
  (place == "encoder" ? config.encoder_attention
   : place == "cross" ? config.cross_attention
                      : config.decoder_attention) = name;
  config.encoder_mechanism = config.decoder_mechanism = config.cross_mechanism = m;
  return config;
}

inline TransformerSeq2Seq built(const TransformerSeq2SeqConfig& config) {
  return model_of(config.options, config.factory());
}

}  // namespace heed::test

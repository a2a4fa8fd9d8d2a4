// Recurrent encoder-decoders against the formulas of their papers in PyTorch, and decoding against the whole sequence.
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/reductions.hpp>
#include <heed/autograd/shape_ops.hpp>
#include <heed/autograd/tape.hpp>
#include <heed/core/parallel.hpp>
#include <heed/layers/attention/luong.hpp>
#include <heed/layers/model.hpp>
#include <heed/layers/seq2seq.hpp>

#include "tests/autograd/fused_support.hpp"
#include "tests/layers/prompts.hpp"
#include "tests/reference/stored.hpp"
#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;

namespace {

const StoredCases& stored_seq2seq() { return stored_cases("seq2seq_torch.json"); }

Seq2SeqOptions small(DecoderAttention attention) {
  return {.source_vocabulary = 7,
          .target_vocabulary = 8,
          .embedding = 3,
          .hidden = 4,
          .attention = attention,
          .label_smoothing = 0.1};
}

struct Case {
  std::string title;
  Seq2SeqOptions options;
};

std::vector<Case> cases() {
  std::vector<Case> list = {
      {"bahdanau", small(DecoderAttention::bahdanau)}, {"bahdanau lstm 2 layers", small(DecoderAttention::bahdanau)},
      {"luong", small(DecoderAttention::luong)},       {"luong feeding lstm", small(DecoderAttention::luong)},
      {"none", small(DecoderAttention::none)},         {"none each step", small(DecoderAttention::none)}};
  list[1].options.cell = list[3].options.cell = RecurrentKind::lstm;
  list[1].options.layers = 2;
  list[2].options.bidirectional = list[4].options.bidirectional = false;
  list[3].options.input_feeding = true;
  list[5].options.context_each_step = true;
  return list;
}

// Two pairs. The second is padded in source and target.
Batch pairs() {
  Batch b;
  b["source"] = stored_seq2seq().inputs.at("source").to(DType::int32);
  b["source_lengths"] = stored_seq2seq().inputs.at("source_lengths").to(DType::int32);
  b.inputs = stored_seq2seq().inputs.at("inputs").to(DType::int32);
  b.targets = stored_seq2seq().inputs.at("targets").to(DType::int32);
  return b;
}

Tensor counted_rows(const Tensor& logits) {  // the rows of [2, 3, V] whose targets count
  return concatenate({logits.select(0, 0), logits.select(0, 1).slice(0, 0, 2)}, 0);
}

Seq2Seq larger(DecoderAttention attention, bool feeding = false, const MechanismFactory& mechanism = {}) {
  Rng rng(5);
  return Seq2Seq({.source_vocabulary = 20,
                  .target_vocabulary = 22,
                  .embedding = 8,
                  .hidden = 16,
                  .attention = attention,
                  .heads = 2,
                  .input_feeding = feeding},
                 rng, mechanism);
}

Batch random_pairs(Index batch = 5, Index S = 7, Index T = 6) {
  Batch b;
  b["source"] = random_ids({batch, S}, 20, 1);
  Tensor lengths = Tensor::zeros({batch}, DType::int32);
  for (Index i = 0; i < batch; ++i) lengths.ptr<std::int32_t>()[i] = static_cast<std::int32_t>(S - i % 4);
  b["source_lengths"] = lengths;
  b.inputs = random_ids({batch, T}, 22, 2);
  b.targets = random_ids({batch, T}, 22, 3);
  return b;
}

}  // namespace

TEST_CASE("encoder-decoders have the logits, losses, gradients and weights of their formulas") {
  for (const Case& c : cases()) {
    CAPTURE(c.title);
    Rng rng(1);
    Seq2Seq model(c.options, rng);
    to(model, DType::float64);
    const Named& stored = stored_seq2seq().cases.at(c.title);
    std::size_t taken = 0;
    for (const NamedParameter& p : named_parameters(model)) {
      REQUIRE_MESSAGE(stored.count(p.name) == 1, p.name);
      p.parameter->copy_(stored.at(p.name));
      ++taken;
    }
    CHECK(taken == (stored.size() - 3) / 2);  // every parameter is stored with its gradient
    CHECK(close(counted_rows(model(pairs())), stored.at("logits"), 1e-12, 1e-12));
    if (model.attention) {
      const Tensor weights = model.attention_weights(pairs())[0];
      const Tensor counts = Tensor::from<double>({1, 1, 1, 1, 1, 0}, {2, 1, 3, 1});
      CHECK(close(weights * counts, stored.at("weights"), 1e-12, 1e-12));
    }
    Tape tape;
    const Tensor loss = model.loss(pairs());
    CHECK(close(loss.detach(), stored.at("loss"), 1e-12, 1e-12));
    tape.backward(loss);
    for (const NamedParameter& p : named_parameters(model)) {
      CAPTURE(p.name);
      CHECK(close(p.parameter->grad(), stored.at("d " + p.name), 1e-11, 1e-11));
    }
  }
}

TEST_CASE("an encoder-decoder that reads one word at a time gives the results of all words at once") {
  for (const bool feeding : {false, true}) {
    for (const DecoderAttention attention :
         {DecoderAttention::none, DecoderAttention::bahdanau, DecoderAttention::luong}) {
      if (feeding && attention != DecoderAttention::luong) continue;
      const Seq2Seq model = larger(attention, feeding);
      const Batch b = random_pairs();
      const Tensor whole = model(b);
      DecodeState state = model.make_state(b.at("source"), b.at("source_lengths"));
      for (Index t = 0; t < 6; ++t)
        CHECK(close(state.read(b.inputs.slice(1, t, t + 1)), whole.select(1, t), 1e-5, 1e-5));
    }
  }
}

TEST_CASE("Bahdanau's decoder with the output from its state alone") {
  Seq2SeqOptions o = small(DecoderAttention::bahdanau);
  Rng rng(1), same(1);
  Seq2Seq whole(o, rng);
  o.output_from_state = true;
  Seq2Seq alone(o, same);
  CHECK(alone.output.weight.shape() == Shape{8, 4});
  // The same model, with weights of 0 for the context and the word.
  const std::vector<NamedParameter> from = named_parameters(whole), to = named_parameters(alone);
  for (std::size_t i = 0; i < from.size(); ++i)
    if (from[i].name != "output.weight") to[i].parameter->copy_(*from[i].parameter);
  whole.output.weight.fill_(0);
  whole.output.weight.slice(1, 0, 4).copy_(alone.output.weight);
  CHECK(close(alone(pairs()), whole(pairs()), 1e-6, 1e-6));
  DecodeState state = alone.make_state(pairs().at("source"), pairs().at("source_lengths"));
  const Tensor logits = alone(pairs());
  for (Index t = 0; t < 3; ++t)
    CHECK(close(state.read(pairs().inputs.slice(1, t, t + 1)), logits.select(1, t), 1e-5, 1e-5));
  const Seq2SeqConfig config{.options = o};
  CHECK(from_json<Seq2SeqConfig>(to_json(config)).options.output_from_state);
  CHECK(!contains(to_json(Seq2SeqConfig{.options = small(DecoderAttention::bahdanau)}), "output_from_state"));
}

TEST_CASE("the bridge copy: the decoder begins with the last state of the encoder") {
  Seq2SeqOptions o = small(DecoderAttention::none);
  o.bridge = Bridge::copy, o.bidirectional = false;
  Rng rng(1);
  const Seq2Seq model(o, rng);
  CHECK(model.bridges.empty());
  const Batch b = pairs();
  const std::vector<Tensor> last =
      model.encoder(model.source(b.at("source")), {.lengths = b.at("source_lengths")}).states;
  const Tensor h = model.decoder(model.target(b.inputs), {.states = last}).y;
  CHECK(close(model(b), model.output(h), 1e-6, 1e-6));
}

TEST_CASE("rows of a decode state are picked and continue, and prompts of different length are read") {
  for (const DecoderAttention attention :
       {DecoderAttention::none, DecoderAttention::bahdanau, DecoderAttention::luong}) {
    const Seq2Seq model = larger(attention, attention == DecoderAttention::luong);
    const Batch b = random_pairs();
    check_prompts(model, b, 1e-5);
    DecodeState state = model.make_state(b.at("source"), b.at("source_lengths"));
    DecodeState copy = state;  // continues separately
    const Tensor next = b.inputs.slice(1, 0, 1);
    copy.read(next);
    CHECK(!same_bits(copy.read(next), state.read(next)));
  }
}

TEST_CASE("any mechanism for memories works in a decoder, for all words at once and word by word") {
  for (const std::string& name : memory_mechanism_names()) {
    CAPTURE(name);
    const MechanismFactory factory = mechanism_by_name(
        name, {.memory = true, .heads = 2, .head_size = 8, .context = 9, .window = 8, .stride = 2, .radius = 2});
    Rng rng(1);
    if (!factory(0, rng).capabilities().key_mask) continue;
    for (const DecoderAttention attention : {DecoderAttention::bahdanau, DecoderAttention::luong}) {
      const Seq2Seq model = larger(attention, false, factory);
      const Batch b = random_pairs();
      const Tensor whole = model(b);
      DecodeState state = model.make_state(b.at("source"), b.at("source_lengths"));
      for (Index t = 0; t < 6; ++t)
        CHECK(close(state.read(b.inputs.slice(1, t, t + 1)), whole.select(1, t), 2e-4, 2e-4));
      check_prompts(model, b, 2e-4);
      Tape tape;
      tape.backward(model.loss(b));
    }
  }
}

TEST_CASE("padding of a source has no effect on an encoder-decoder and gets no gradient") {
  Seq2Seq model = larger(DecoderAttention::bahdanau);
  Batch b = random_pairs();
  const auto gradients = [&] {
    for (const NamedParameter& p : named_parameters(model)) p.parameter->zero_grad();
    Tape tape;
    tape.backward(model.loss(b));
    std::vector<Tensor> list;
    for (const NamedParameter& p : named_parameters(model)) list.push_back(p.parameter->grad().clone());
    return list;
  };
  const std::vector<Tensor> before = gradients();
  for (Index i = 0; i < 5; ++i)
    for (Index s = b.at("source_lengths").ptr<std::int32_t>()[i]; s < 7; ++s)
      b["source"].select(0, i).slice(0, s, s + 1).fill_(19);
  const std::vector<Tensor> after = gradients();
  for (std::size_t i = 1; i < before.size(); ++i) CHECK(same_bits(before[i], after[i]));
  CHECK(close(before[0], after[0], 0, 0));  // the embedding's gradient: 0 and -0 may differ
  same_at_any_threads([&] { return gradients(); });
}

TEST_CASE("an encoder-decoder is described in JSON, and built again") {
  for (const Case& c : cases()) {
    Seq2SeqConfig config{.options = c.options, .attention = "luong-local-p", .mechanism = {.radius = 3}};
    config.options.dropout = 0.2;
    const std::string text = to_json(config);
    const auto same = from_json<Seq2SeqConfig>(text, "t.h5");
    CHECK(to_json(same) == text);
    Rng rng(1);
    Seq2Seq model(same.options, rng, same.factory());
    if (model.attention) CHECK(model.attention->name() == "luong-local-p");
    const Seq2Seq copy = clone(model);
    CHECK(same_bits(copy(pairs()), model(pairs())));
  }
  // A mechanism whose number of parameters depends on the longest source.
  Seq2SeqConfig located{
      .options = small(DecoderAttention::luong), .attention = "luong-location", .mechanism = {.context = 40}};
  CHECK(from_json<Seq2SeqConfig>(to_json(located), "t.h5").mechanism.context == 40);
  Seq2SeqConfig config{.options = small(DecoderAttention::luong), .attention = "luong-general"};
  const std::string text = to_json(config);
  const auto with = [&](const std::string& from, const std::string& into) {
    std::string other = text;
    const std::size_t at = other.find(from);
    REQUIRE(at != std::string::npos);
    return error_of([&, changed = other.replace(at, from.size(), into)] { from_json<Seq2SeqConfig>(changed, "t.h5"); });
  };
  CHECK(with("\"gru\"", "\"tree\"") ==
        "t.h5: the configuration has \"tree\" for cell; it must be gru, gru-original, lstm, rnn or rnn-relu");
  CHECK(with("\"hidden\":4", "\"hidden\":0") ==
        "t.h5: the configuration has 0 for hidden; it must be a whole number from 1 to 16777216");
  CHECK(with("\"heads\":1", "\"heads\":3") ==
        "t.h5: the configuration has 3 for heads; it must be a divisor of hidden, 4");
}

TEST_CASE("encoder-decoders: errors") {
  Rng rng(1);
  const auto with = [&](auto change, const MechanismFactory& mechanism = {}) {
    return [&, change, mechanism] {
      Seq2SeqOptions o = small(DecoderAttention::bahdanau);
      change(o);
      Seq2Seq(o, rng, mechanism);
    };
  };
  const Seq2Seq model = larger(DecoderAttention::none);
  const Batch b = random_pairs();
  Batch uneven = b;
  uneven.inputs = b.inputs.slice(0, 0, 3);
  check_errors({
      {"Seq2Seq: the inputs are [3, 6] int32 and the source has 5 rows; they must be int32 [5, positions]",
       [&] { model(uneven); }},
      {"Seq2Seq: hidden is 5 and embedding is 3; both must be 1 or more, and hidden must be even if the encoder is "
       "bidirectional",
       with([](auto& o) { o.hidden = 5; })},
      {"heads is 3 and hidden is 4", with([](auto& o) { o.heads = 3; })},
      {"attention is none and bridge is zeros",
       with([](auto& o) { o.attention = DecoderAttention::none, o.bridge = Bridge::zeros; })},
      {"input_feeding requires luong attention", with([](auto& o) { o.input_feeding = true; })},
      {"output_from_state requires bahdanau attention",
       with([](auto& o) { o.attention = DecoderAttention::luong, o.output_from_state = true; })},
      {"context_each_step requires a decoder without attention", with([](auto& o) { o.context_each_step = true; })},
      {"Seq2Seq: window attention cannot attend to another sequence: ",
       with([](auto&) {}, mechanism_by_name("window", {.window = 3}))},
      {"the model has no attention", [&] { model.attention_weights(b); }},
      {"the source is",
       [&] {
         model.make_state(normal({2, 3}));
       }},
  });
}

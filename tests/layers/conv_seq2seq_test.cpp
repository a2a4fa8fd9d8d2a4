// ConvS2S and ByteNet against PyTorch, and decoding against the whole sequence.
#include <algorithm>
#include <cmath>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/reductions.hpp>
#include <heed/autograd/shape_ops.hpp>
#include <heed/autograd/tape.hpp>
#include <heed/core/parallel.hpp>
#include <heed/layers/conv_seq2seq.hpp>
#include <heed/layers/model.hpp>
#include <heed/optim/optimizers/optimizers.hpp>
#include <type_traits>

#include "tests/autograd/fused_support.hpp"
#include "tests/layers/translating.hpp"
#include "tests/reference/stored.hpp"
#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;

namespace {

const StoredCases& stored_convolutional() { return stored_cases("conv_seq2seq_torch.json"); }

ConvS2SOptions small_convs2s() {
  return {.source_vocabulary = 20,
          .target_vocabulary = 22,
          .width = 8,
          .hidden = 12,
          .layers = 2,
          .context = 30,
          .dropout = 0};
}

ByteNetOptions small_bytenet() {
  return {.source_vocabulary = 20,
          .target_vocabulary = 22,
          .width = 12,
          .hidden = 6,
          .layers = 3,
          .dilations = 2,
          .dropout = 0};
}

ConvS2S built(const ConvS2SOptions& o) {
  Rng rng(5);
  return ConvS2S(o, rng);
}
ByteNet built(const ByteNetOptions& o) {
  Rng rng(5);
  return ByteNet(o, rng);
}

// Calls f with the options of a small model of each kind.
template <class F>
void for_both(const F& f) {
  SUBCASE("ConvS2S") { f(small_convs2s()); }
  SUBCASE("ByteNet") { f(small_bytenet()); }
}

const Parameter& source_table(const ConvS2S& model) { return model.source.tokens->weight; }
const Parameter& source_table(const ByteNet& model) { return model.source.weight; }

// The two pairs of the stored reference. The second is padded in source and target.
Batch convolved_pairs() {
  Batch b;
  const auto ids = [](const char* name) { return stored_convolutional().inputs.at(name).to(DType::int32); };
  b["source"] = ids("source"), b["source_lengths"] = ids("source_lengths");
  b.inputs = ids("inputs"), b.targets = ids("targets");
  return b;
}

template <class M>
void check_stored(M model, const std::string& title) {
  to(model, DType::float64);
  const Named& stored = stored_convolutional().cases.at(title);
  std::size_t taken = 0;
  for (const NamedParameter& p : named_parameters(model)) {
    REQUIRE_MESSAGE(stored.count(p.name) == 1, p.name);
    p.parameter->copy_(stored.at(p.name));
    ++taken;
  }
  const std::size_t others = title == "convs2s" ? 5 : 3;
  CHECK(taken == (stored.size() - others) / 2);  // every parameter is stored with its gradient
  const Batch b = convolved_pairs();
  const Tensor logits = model(b);
  const Tensor counted = concatenate({logits.select(0, 0), logits.select(0, 1).slice(0, 0, 4)}, 0);
  CHECK(close(counted, stored.at("logits"), 1e-12, 1e-12));
  CHECK(close(model.loss(b), stored.at("plain loss"), 1e-12, 1e-12));  // no smoothing outside training
  if (title == "convs2s") {
    const std::vector<Tensor> weights = model.attention_weights(b);
    const Tensor counts = Tensor::from<double>({1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0}, {2, 1, 6, 1});
    REQUIRE(weights.size() == 2);
    for (std::size_t i = 0; i < 2; ++i)
      CHECK(close(weights[i] * counts, stored.at("weights " + std::to_string(i)), 1e-12, 1e-12));
  }
  const std::vector<Tensor> made = loss_and_gradients(model, b);
  CHECK(close(made[0], stored.at("loss"), 1e-12, 1e-12));
  std::size_t i = 1;
  for (const NamedParameter& p : named_parameters(model)) {
    CAPTURE(p.name);
    CHECK(close(made[i++], stored.at("d " + p.name), 1e-11, 1e-11));
  }
}

}  // namespace

TEST_CASE("ConvS2S and ByteNet have the logits, losses, gradients and weights of their formulas in PyTorch") {
  check_stored(built({.source_vocabulary = 7,
                      .target_vocabulary = 8,
                      .width = 4,
                      .hidden = 3,
                      .layers = 2,
                      .context = 6,
                      .dropout = 0,
                      .label_smoothing = 0.1}),
               "convs2s");
  check_stored(built(ByteNetOptions{.source_vocabulary = 7,
                                    .target_vocabulary = 8,
                                    .width = 4,
                                    .hidden = 3,
                                    .layers = 3,
                                    .dilations = 2,
                                    .dropout = 0,
                                    .label_smoothing = 0.1}),
               "bytenet");
}

TEST_CASE("the gradients of convolutional translation models agree with difference quotients") {
  for_both([](auto o) {
    o.width = 4, o.hidden = 3, o.layers = 2;
    auto model = built(o);
    to(model, DType::float64);
    // With biases of 0, relu is at its kink in the zeros that follow ByteNet's source.
    Rng rng(7);
    for (const NamedParameter& p : named_parameters(model))
      if (p.name.ends_with(".bias")) rng.normal_(*p.parameter, 0, 0.5);
    const Batch b = random_sentences(2, 5);
    gradcheck([&] { return model.loss(b); }, named_parameters(model), {.min_samples = thinned<Index>(20, 3)});
  });
}

TEST_CASE("padding has no effect on a convolutional translation model and gets no gradient, exactly") {
  for_both([](const auto& o) {
    auto model = built(o);
    check_padding(model, source_table(model));
  });
}

TEST_CASE("a convolutional translation model that reads one word at a time gives the results of all words at once") {
  for_both([](const auto& o) {
    auto model = built(o);
    to(model, DType::float64);
    check_reading(model);
  });
}

TEST_CASE("ByteNet decodes beyond its encoded source, which is 0 there, and texts of any length") {
  ByteNetOptions o = small_bytenet();
  o.length_ratio = 1.5, o.extra_length = 1;
  ByteNet model = built(o);
  to(model, DType::float64);
  Batch b;
  b["source"] = random_ids({2, 3}, 20, 1);  // encoded as 6 positions
  b.inputs = random_ids({2, 9}, 22, 2);
  const Tensor whole = model(b);
  DecodeState state = model.make_state(b.at("source"));
  for (Index t = 0; t < 9; ++t) CHECK(close(state.read(b.inputs.slice(1, t, t + 1)), whole.select(1, t), 1e-12, 1e-12));
  // A source token changes results up to the end, and the first result depends on the whole source.
  Batch other = b;
  other["source"] = b["source"].clone();
  other["source"].select(0, 1).slice(0, 2, 3).fill_(b["source"].at({1, 2}) == 3 ? 4 : 3);
  const Tensor changed = model(other);
  CHECK(same_bits(changed.select(0, 0), whole.select(0, 0)));
  CHECK(!close(changed.select(0, 1)[0], whole.select(0, 1)[0], 1e-9, 1e-9));
  // The defaults of the paper: 1.2 times the source.
  ByteNet usual = built(small_bytenet());
  CHECK(usual(b).shape() == Shape{2, 9, 22});
}

TEST_CASE("ConvS2S has weights per layer, and its learned positions end with an Error") {
  const ConvS2S model = built(small_convs2s());
  const Batch b = random_sentences();
  const std::vector<Tensor> weights = model.attention_weights(b);
  REQUIRE(weights.size() == 2);
  CHECK(weights[1].shape() == Shape{5, 1, 6, 7});
  CHECK(close(sum(weights[1], {3}), Tensor::ones({5, 1, 6})));
  CHECK(same_bits(weights[0].select(0, 1).slice(2, 6, 7), Tensor::zeros({1, 6, 1})));  // padding
  const Tensor words = random_ids({1, 31}, 20, 4);
  DecodeState state = model.make_state(words.slice(1, 0, 30));
  state.read(words.slice(1, 0, 30));
  check_errors({{"ConvS2S: x reaches position 31 but the model's context is 30", [&] { model.make_state(words); }},
                {"ConvS2S: x reaches position 31", [&] { state.read(words.slice(1, 30, 31)); }}});
}

TEST_CASE("the loss and gradients of convolutional translation models have the same bits at any number of threads") {
  for_both([](auto o) {
    o.dropout = 0.2;
    auto model = built(o);
    const Batch b = random_sentences(12, 11);
    same_at_any_threads([&] { return loss_and_gradients(model, b); });
  });
}

TEST_CASE("ConvS2S begins with the weights of its paper") {
  ConvS2SOptions o = small_convs2s();
  o.width = 64, o.hidden = 128, o.source_vocabulary = o.target_vocabulary = o.context = 500, o.dropout = 0.2;
  ConvS2S model = built(o);
  const auto spread = [](const Tensor& x) { return std::sqrt(mean(square(x)).item()); };
  CHECK(spread(model.source.tokens->weight) == doctest::Approx(0.1).epsilon(0.03));
  CHECK(spread(model.target.positions->weight) == doctest::Approx(0.1).epsilon(0.03));
  CHECK(spread(model.encoder_in.weight) == doctest::Approx(std::sqrt(0.8 / 64)).epsilon(0.03));
  CHECK(spread(model.decoder[1].query.weight) == doctest::Approx(std::sqrt(1.0 / 128)).epsilon(0.03));
  CHECK(spread(model.decoder[0].conv.weight) == doctest::Approx(std::sqrt(4 * 0.8 / (3 * 128))).epsilon(0.03));
  for (const NamedParameter& p : named_parameters(model))
    if (p.name.ends_with(".bias")) CHECK(same_bits(*p.parameter, Tensor::zeros(p.parameter->shape())));
}

TEST_CASE("configurations of convolutional translation models as JSON, and options out of range") {
  const ByteNetConfig bytenet{{.source_vocabulary = 20, .target_vocabulary = 22, .width = 8, .hidden = 6, .layers = 2}};
  CHECK(to_json(bytenet) == to_json(from_json<ByteNetConfig>(to_json(bytenet), "a test")));
  CHECK(contains(to_json(bytenet), "\"decoder_layers\":2,\"dilations\":5,\"length_ratio\":1.2,\"extra_length\":0,"));
  const ConvS2SConfig convs2s{small_convs2s()};
  CHECK(to_json(convs2s) == to_json(from_json<ConvS2SConfig>(to_json(convs2s), "a test")));
  const auto bad_convs2s = [](auto change) {
    ConvS2SOptions o = small_convs2s();
    change(o);
    return std::function<void()>([o] { built(o); });
  };
  const auto bad_bytenet = [](auto change) {
    ByteNetOptions o = small_bytenet();
    change(o);
    return std::function<void()>([o] { built(o); });
  };
  const Tensor words = random_ids({2, 3}, 20, 1);
  const ByteNet model = built(small_bytenet());
  const ConvS2S other = built(small_convs2s());
  Batch b = random_sentences();
  check_errors({
      {"ConvS2S: layers is 2, decoder_layers is 2 and kernel is 4; layers and decoder_layers must be 1 or more, and "
       "kernel must be odd",
       bad_convs2s([](ConvS2SOptions& o) { o.kernel = 4; })},
      {"ConvS2S: layers is 0", bad_convs2s([](ConvS2SOptions& o) { o.layers = 0; })},
      {"ConvS2S: dropout is 1 and label_smoothing is 0", bad_convs2s([](ConvS2SOptions& o) { o.dropout = 1; })},
      {"ByteNet: layers is 3, decoder_layers is 3 and kernel is 2", bad_bytenet([](auto& o) { o.kernel = 2; })},
      {"ByteNet: dilations is 2, length_ratio is 0.9 and extra_length is 0; they must be from 1 to 20, from 1 to 100, "
       "and 0 or more",
       bad_bytenet([](auto& o) { o.length_ratio = 0.9; })},
      {"ByteNet: dropout is -1", bad_bytenet([](auto& o) { o.dropout = -1; })},
      {"ByteNet: the model has no attention, so it has no attention weights", [&] { model.attention_weights(b); }},
      {"ByteNet: source_lengths are [3] int32; they must be int32 [2]",
       [&] { model.make_state(words, Tensor::zeros({3}, DType::int32)); }},
      {"ByteNet: tokens are [3, 1] int32; they must be int32 [2, 1 or more]",
       [&] {
         model.make_state(words).read(random_ids({3, 1}, 20, 1));
       }},
      {"ConvS2S: tokens are [3, 1] int32; they must be int32 [2, 1 or more]",
       [&] {
         other.make_state(words).read(random_ids({3, 1}, 20, 1));
       }},
      {"ConvS2S: x is [6] int32; it must be int32 [batch, positions]", [&] { other.make_state(words.view({6})); }},
      {"the configuration has 4 for kernel; it must be an odd number",
       [] {
         ConvS2SConfig c{small_convs2s()};
         c.options.kernel = 4;
         from_json<ConvS2SConfig>(to_json(c), "a test");
       }},
  });
  b.targets = b.targets.slice(1, 0, 2);
  check_errors({{"ConvS2S: the inputs are [5, 6] int32 and the targets are [5, 2] int32", [&] { other.loss(b); }},
                {"ByteNet: the inputs are [5, 6] int32 and the targets are [5, 2] int32", [&] { model.loss(b); }}});
}

RELEASE_TEST_CASE("convolutional translation models learn a small task, and beams find what they have learned") {
  for_both([](auto o) {
    constexpr Index kWords = 8, kLength = 5, kBegin = 8, kEnd = 9;
    o.source_vocabulary = o.target_vocabulary = 10, o.width = o.hidden = 32, o.layers = 2;
    auto model = built(o);
    Adam optimizer(named_parameters(model), {.lr = 5e-3});
    // Words are written in reverse, which needs attention; by ByteNet, each place has the next word, and the last two
    // are the same.
    const auto pairs = [](std::uint64_t seed, Index rows) {
      constexpr bool kReverse = std::is_same_v<decltype(o), ConvS2SOptions>;
      Batch b;
      b["source"] = random_ids({rows, kLength}, kWords, seed);
      std::vector<Tensor> words;
      for (Index i = 0; i < kLength; ++i) {
        const Index from = kReverse ? kLength - 1 - i : std::min(i + 1, kLength - 1);
        words.push_back(b["source"].slice(1, from, from + 1));
      }
      const Tensor target = concatenate(words, 1);
      b.inputs = concatenate({Tensor::full({rows, 1}, kBegin, DType::int32), target}, 1);
      b.targets = concatenate({target, Tensor::full({rows, 1}, kEnd, DType::int32)}, 1);
      return b;
    };
    for (std::uint64_t step = 0; step < 300; ++step) {
      optimizer.zero_grad();
      Tape tape;
      tape.backward(model.loss(pairs(100 + step, 32)));
      optimizer.clipped_step(1.0);
    }
    const Batch b = pairs(1, 40);
    const std::vector<std::vector<std::int32_t>> prompts(40, {kBegin});
    const auto beams = beam_search(model.make_state(b.at("source")), prompts,
                                   {.beam = 3, .count = kLength + 3, .stop_tokens = {kEnd}});
    Index right = 0;
    for (Index i = 0; i < 40; ++i) right += beams[static_cast<std::size_t>(i)][0].tokens == ids_of(b.targets[i]);
    CHECK(right >= 38);
  });
}

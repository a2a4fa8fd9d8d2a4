// Encoder-decoder Transformers against PyTorch's nn.Transformer, and decoding against the whole sequence.
#include <functional>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/reductions.hpp>
#include <heed/autograd/shape_ops.hpp>
#include <heed/autograd/tape.hpp>
#include <heed/core/parallel.hpp>
#include <heed/layers/attention/linear.hpp>
#include <heed/layers/attention/sparse.hpp>
#include <heed/layers/model.hpp>
#include <heed/layers/transformer_seq2seq.hpp>
#include <heed/optim/optimizers/optimizers.hpp>

#include "tests/autograd/fused_support.hpp"
#include "tests/layers/prompts.hpp"
#include "tests/layers/translating.hpp"
#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;

namespace {

Tensor rows_that_count(const Tensor& logits) {  // the rows of [2, 3, V] whose targets count
  return concatenate({logits.select(0, 0), logits.select(0, 1).slice(0, 0, 2)}, 0);
}

constexpr PositionKind kAllPositions[] = {PositionKind::none, PositionKind::learned, PositionKind::sinusoidal,
                                          PositionKind::rope, PositionKind::relative};

}  // namespace

TEST_CASE("encoder-decoder transformers have the logits, losses, gradients and weights of nn.Transformer") {
  for (const auto& given : stored_options()) {
    const auto& title = given.first;
    const auto& options = given.second;
    CAPTURE(title);
    Rng rng(1);
    TransformerSeq2Seq model(options, rng);
    to(model, DType::float64);
    const Named& stored = stored_transformers().cases.at(title);
    std::size_t taken = 0;
    for (const NamedParameter& p : named_parameters(model)) {
      REQUIRE_MESSAGE(stored.count(p.name) == 1, p.name);
      p.parameter->copy_(stored.at(p.name));
      ++taken;
    }
    CHECK(taken == (stored.size() - 5) / 2);  // every parameter is stored with its gradient
    CHECK(close(rows_that_count(model(stored_pairs())), stored.at("logits"), 1e-12, 1e-12));
    CHECK(close(model.loss(stored_pairs()), stored.at("plain loss"), 1e-12, 1e-12));  // no smoothing outside training
    const std::vector<Tensor> weights = model.attention_weights(stored_pairs());
    const Tensor counts = Tensor::from<double>({1, 1, 1, 1, 1, 0}, {2, 1, 3, 1});
    REQUIRE(weights.size() == 2);
    for (std::size_t i = 0; i < 2; ++i)
      CHECK(close(weights[i] * counts, stored.at("weights " + std::to_string(i)), 1e-12, 1e-12));
    const std::vector<Tensor> made = loss_and_gradients(model, stored_pairs());
    CHECK(close(made[0], stored.at("loss"), 1e-12, 1e-12));
    std::size_t i = 1;
    for (const NamedParameter& p : named_parameters(model)) {
      CAPTURE(p.name);
      CHECK(close(made[i++], stored.at("d " + p.name), 1e-11, 1e-11));
    }
  }
}

TEST_CASE("the gradients of encoder-decoder transformers agree with difference quotients") {
  for (const bool first : {false, true}) {
    for (const PositionKind positions : kAllPositions) {
      TransformerSeq2SeqOptions o = small(positions);
      o.blocks.attention.width = 4, o.blocks.hidden = 5, o.blocks.norm_first = first,
      o.blocks.layers = o.decoder_layers = 1;
      o.joined = positions == PositionKind::rope;
      if (o.joined) o.source_vocabulary = 22;
      TransformerSeq2Seq model = model_of(o);
      to(model, DType::float64);
      const Batch b = random_sentences(2, 5);
      gradcheck([&] { return model.loss(b); }, named_parameters(model), {.min_samples = thinned<Index>(20, 3)});
    }
  }
}

TEST_CASE("attention weights may have a separate dropout, in JSON too") {
  const auto losses = [](double dropout, std::optional<double> attention_dropout) {
    TransformerSeq2SeqConfig c;
    c.options = small(PositionKind::sinusoidal);
    c.options.blocks.dropout = dropout, c.options.blocks.attention.dropout = attention_dropout,
    c.options.label_smoothing = 0;
    const auto again = from_json<TransformerSeq2SeqConfig>(to_json(c), "a test");
    CHECK(again.options.blocks.attention.dropout == attention_dropout);
    TransformerSeq2Seq model = model_of(again.options);
    manual_seed(1);
    const double evaluated = model.loss(stored_pairs()).item();
    const Tape tape;
    return std::pair{model.loss(stored_pairs()).item(), evaluated};
  };
  const auto [none, plain] = losses(0, {});
  CHECK(none == plain);
  const auto [weights, same] = losses(0, 0.5);
  CHECK(same == plain);
  CHECK(weights != plain);
  CHECK(losses(0.5, 0.5).first == losses(0.5, {}).first);
  CHECK(losses(0.5, 0).first != losses(0.5, {}).first);
}

// Calls f(model) for both orders of norms and all positions.
static void for_all_forms(const std::function<void(TransformerSeq2Seq& model)>& f) {
  for (const bool first : {false, true}) {
    for (const PositionKind positions : kAllPositions) {
      CAPTURE(static_cast<int>(positions));
      TransformerSeq2SeqOptions o = small(positions);
      o.blocks.norm_first = first;
      TransformerSeq2Seq model = model_of(o);
      f(model);
    }
  }
}

TEST_CASE("padding has no effect on a translating transformer and gets no gradient, exactly") {
  for_all_forms([](TransformerSeq2Seq& model) { check_padding(model, model.source.tokens->weight); });
}

TEST_CASE("a translating transformer that reads one word at a time gives the results of all words at once") {
  for_all_forms([](TransformerSeq2Seq& model) {
    to(model, DType::float64);
    check_reading(model);
  });
}

TEST_CASE("a translating transformer with sinusoids has no longest text, and learned positions end with an Error") {
  const TransformerSeq2Seq endless = model_of(small());
  const Tensor words = random_ids({1, 30}, 20, 4);
  DecodeState state = endless.make_state(words);
  for (Index t = 0; t < 30; ++t) state.read(words.slice(1, t, t + 1));
  CHECK(state.read(words).dim(1) == 22);

  const TransformerSeq2Seq learned = model_of(small(PositionKind::learned));
  DecodeState nine = learned.make_state(words.slice(1, 0, 9));
  nine.read(words.slice(1, 0, 9));
  check_errors({{"TransformerSeq2Seq: x reaches position 10 but the model's context is 9",
                 [&] { nine.read(words.slice(1, 9, 10)); }},
                {"x reaches position 30", [&] { learned.make_state(words); }}});
}

TEST_CASE("any suitable mechanism works in a translating transformer, with padding and word by word") {
  const auto agrees = [](const TransformerSeq2SeqConfig& config) {
    TransformerSeq2Seq model = built(config);
    const Batch b = random_sentences();
    const Tensor whole = model(b);
    for (Index i = 0; i < 5; ++i)
      CHECK(close(whole.select(0, i).slice(0, 0, target_length(i)), model(pair_alone(b, i))[0], 2e-4, 2e-4));
    DecodeState state = model.make_state(b.at("source"), b.at("source_lengths"));
    for (Index t = 0; t < kTimes; ++t)
      CHECK(close(state.read(b.inputs.slice(1, t, t + 1)), whole.select(1, t), 2e-4, 2e-4));
    check_prompts(model, b, 2e-4);
    loss_and_gradients(model, b);
    CHECK(same_bits(square(model.source.tokens->weight.grad()[19]),
                    Tensor::zeros({16})));  // this word occurs in padding only
    CHECK(same_bits(clone(model)(b), whole));
  };
  for (const std::string& name : mechanism_names(false)) {
    CAPTURE(name);
    agrees(config_with("encoder", name));
  }
  for (const std::string& name : mechanism_names(true)) {
    CAPTURE(name);
    agrees(config_with("decoder", name));
  }
  for (const std::string& name : memory_mechanism_names()) {
    CAPTURE(name);
    agrees(config_with("cross", name));
  }
}

TEST_CASE("the loss and the gradients of a translating transformer have the same bits at any number of threads") {
  TransformerSeq2SeqOptions o = small();
  o.source_vocabulary = 22, o.joined = true, o.blocks.dropout = 0.2;
  TransformerSeq2Seq model = model_of(o);
  const Batch b = random_sentences(12, 11);
  same_at_any_threads([&] { return loss_and_gradients(model, b); });
}

TEST_CASE("a translating transformer begins with the weights of fairseq's") {
  TransformerSeq2SeqOptions o = small(PositionKind::learned);
  o.blocks.attention.width = 64, o.blocks.hidden = 128, o.source_vocabulary = o.target_vocabulary = o.context = 500,
  o.tied = false;
  TransformerSeq2Seq model = model_of(o);
  const auto spread = [](const Tensor& x) { return std::sqrt(mean(square(x)).item()); };
  const auto uniform = [&](const Tensor& x, double bound) {
    CHECK(max(abs(x)).item() <= bound);
    CHECK(spread(x) == doctest::Approx(bound / std::sqrt(3.0)).epsilon(0.03));
  };
  const TransformerBlock& block = model.decoder.blocks[1];
  const double of_attention = std::sqrt(3.0 / 64) / std::sqrt(2.0);
  uniform(model.encoder.blocks[0].attention.qkv->weight, of_attention);
  uniform(block.cross->q->weight, of_attention);
  uniform(block.cross->kv->weight, of_attention);
  uniform(block.cross->proj.weight, std::sqrt(3.0 / 64));
  uniform(block.mlp.up.weight, std::sqrt(6.0 / 192));
  uniform(block.mlp.down.weight, std::sqrt(6.0 / 192));
  for (const Tensor* x :
       {static_cast<const Tensor*>(&model.source.tokens->weight),
        static_cast<const Tensor*>(&model.target.tokens->weight), static_cast<const Tensor*>(&model.output),
        static_cast<const Tensor*>(&model.source.positions->weight)})
    CHECK(spread(*x) == doctest::Approx(0.125).epsilon(0.03));
  for (const NamedParameter& p : named_parameters(model))
    if (p.name.ends_with(".bias")) CHECK(same_bits(*p.parameter, Tensor::zeros(p.parameter->shape())));
}

RELEASE_TEST_CASE("a translating transformer learns to write words in reverse") {
  constexpr Index kWords = 8, kLength = 5, kBegin = 8, kEnd = 9;
  TransformerSeq2SeqOptions o = small();
  o.source_vocabulary = o.target_vocabulary = 10, o.joined = true, o.blocks.attention.width = 32, o.blocks.hidden = 64;
  o.blocks.layers = o.decoder_layers = 1;
  TransformerSeq2Seq model = model_of(o);
  Adam optimizer(named_parameters(model), {.lr = 5e-3});
  const auto pairs = [](std::uint64_t seed, Index rows) {
    Batch b;
    b["source"] = random_ids({rows, kLength}, kWords, seed);
    std::vector<Tensor> reversed;
    for (Index i = kLength; i-- > 0;) reversed.push_back(b["source"].slice(1, i, i + 1));
    const Tensor target = concatenate(reversed, 1);
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
  DecodeState state = model.make_state(b.at("source"));
  Tensor word = Tensor::full({40, 1}, kBegin, DType::int32);
  Index right = 0;
  for (Index t = 0; t <= kLength; ++t) {
    word = argmax(state.read(word), 1).to(DType::int32).unsqueeze(1);
    for (Index i = 0; i < 40; ++i) right += word.at({i, 0}) == b.targets.at({i, t});
  }
  CHECK(right >= 236);  // of 240

  // The same with generate() and beam_search(), which work for any model.
  const std::vector<std::vector<std::int32_t>> prompts(40, {kBegin});
  const auto greedy = generate(model.make_state(b.at("source")), prompts,
                               {.count = kLength + 3, .sampling = {.temperature = 0}, .stop_tokens = {kEnd}});
  const auto beams =
      beam_search(model.make_state(b.at("source")), prompts, {.beam = 3, .count = kLength + 3, .stop_tokens = {kEnd}});
  Index by_greedy = 0, by_beams = 0;
  for (Index i = 0; i < 40; ++i) {
    const std::vector<std::int32_t> expected = ids_of(b.targets[i]);
    by_greedy += greedy[static_cast<std::size_t>(i)] == expected;
    by_beams += beams[static_cast<std::size_t>(i)][0].tokens == expected;
  }
  CHECK(by_greedy >= 38);
  CHECK(by_beams >= 38);
}

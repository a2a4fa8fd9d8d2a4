// Sampling and generation: one prompt, many at once, and beams by picking rows of the states.
#include <cmath>
#include <heed/heed.hpp>
#include <map>

#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;

namespace {

using Text = std::vector<std::int32_t>;

// One that has something to say: its logits lie well apart.
GPT talker(const GPTOptions& o, const MechanismFactory& mechanism = softmax_mechanism) {
  Rng rng(3);
  GPT model(o, rng, mechanism);
  for (const NamedParameter& p : named_parameters(model))
    p.parameter->copy_(*p.parameter + rng.normal(p.parameter->shape(), 0, 0.3));
  return model;
}

GPTOptions small_talker() { return {.vocabulary = 11, .context = 16, .layers = 2, .heads = 2, .width = 8}; }

Text alone(const GPT& model, const Text& prompt, const GenerateOptions& o, std::size_t row) {
  Rng rng(o.seed, row);
  return generate(model, prompt, o.count, o.sampling, rng);
}

// log p of each token of `text` behind its first, by the whole model.
double log_probability(const GPT& model, const Text& text) {
  const auto n = static_cast<Index>(text.size());
  const Tensor logits = log_softmax(model(Tensor::from(text, {1, n})), 2);
  double sum = 0;
  for (Index t = 1; t < n; ++t) sum += logits.at({0, t - 1, text[static_cast<std::size_t>(t)]});
  return sum;
}

// The likeliest `width` texts of `count` tokens behind the prompt, the best first: the states of those that go on are
// picked from the states of those that were there.
std::vector<std::pair<double, Text>> beam_search(const GPT& model, const Text& prompt, Index count, std::size_t width) {
  const NoTape guard;
  std::vector<std::pair<double, Text>> beams = {{0, prompt}};
  std::vector<AttentionState> states;
  Tensor next = Tensor::from(prompt, {1, static_cast<Index>(prompt.size())});
  for (Index step = 0; step < count; ++step) {
    const Tensor logits = log_softmax(model.decode(next, states), 1);
    struct Candidate {
      double score;
      std::int32_t beam, token;
    };
    std::vector<Candidate> all;
    for (std::int32_t b = 0; b < logits.dim(0); ++b)
      for (std::int32_t token = 0; token < logits.dim(1); ++token)
        all.push_back({beams[static_cast<std::size_t>(b)].first + logits.at({b, token}), b, token});
    std::ranges::stable_sort(all, [](const Candidate& a, const Candidate& b) { return a.score > b.score; });
    all.resize(std::min(all.size(), width));
    std::vector<std::pair<double, Text>> longer;
    Text rows, tokens;
    for (const Candidate& c : all) {
      longer.emplace_back(c.score, beams[static_cast<std::size_t>(c.beam)].second).second.push_back(c.token);
      rows.push_back(c.beam), tokens.push_back(c.token);
    }
    beams = longer;
    const auto n = static_cast<Index>(rows.size());
    states = pick_rows(states, Tensor::from(rows, {n}));
    next = Tensor::from(tokens, {n, 1});
  }
  return beams;
}

}  // namespace

TEST_CASE("generation goes on beyond the context, and repeats itself from the same seed") {
  Rng rng(3);
  GPT model({.vocabulary = 11, .context = 8, .layers = 2, .heads = 2, .width = 8}, rng);
  const std::vector<std::int32_t> prompt = {1, 2, 3};
  const auto run = [&](std::uint64_t seed) {
    Rng r(seed);
    return generate(model, prompt, 40, {}, r);
  };
  CHECK(run(1).size() == 40);
  CHECK(run(1) == run(1));
  CHECK(run(1) != run(2));
  Rng r(1);
  int calls = 0;
  CHECK(generate(model, prompt, 40, {}, r, [&](std::int32_t) { return ++calls < 5; }).size() == 5);
  CHECK(contains(error_of([&] { generate(model, {}, 3, {}, r); }), "the prompt is empty"));
  const std::vector<std::int32_t> wrong = {11};
  CHECK(!error_of([&] { generate(model, wrong, 3, {}, r); }).empty());
}

TEST_CASE("sampling: temperature, top-k, top-p") {
  const Tensor logits = Tensor::from<double>({1, 3, 2, 3, -1});
  Rng rng(4);
  CHECK(sample(logits, {.temperature = 0}, rng) == 1);
  std::vector<double> counts(5);
  for (int i = 0; i < 20000; ++i) counts[static_cast<std::size_t>(sample(logits, {.temperature = 2}, rng))] += 1;
  double sum = 0;
  for (double l : {1, 3, 2, 3, -1}) sum += std::exp(l / 2);
  for (std::size_t i = 0; i < 5; ++i)
    CHECK(counts[i] / 20000 == doctest::Approx(std::exp(logits.at({static_cast<Index>(i)}) / 2) / sum).epsilon(0.08));
  for (int i = 0; i < 200; ++i) {
    const std::int32_t k = sample(logits, {.top_k = 2}, rng), p = sample(logits, {.top_p = 0.5}, rng);
    CHECK((k == 1 || k == 3));
    CHECK((p == 1 || p == 3));
  }
  for (int i = 0; i < 50; ++i) CHECK(sample(logits, {.top_p = 0.01}, rng) == 1);
}

TEST_CASE("prompts of different length at once: each text is that of its prompt alone, beyond the context too") {
  const std::vector<Text> prompts = {{1, 2, 3}, {4}, {5, 6, 7, 8, 9, 10, 1, 2, 3, 4, 5, 6}, {1, 2, 3},
                                     {9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}};
  const GenerateOptions o{.count = 40, .sampling = {.temperature = 0.8}, .seed = 7};
  for (const PositionKind kind : {PositionKind::learned, PositionKind::rope, PositionKind::relative})
    for (const std::string name : {"softmax", "linear", "window", "lsh"}) {
      GPTOptions options = small_talker();
      options.positions = kind;
      if (kind == PositionKind::relative && name == "linear") continue;
      CAPTURE(name);
      CAPTURE(static_cast<int>(kind));
      const GPT model = talker(options, mechanism_by_name(name, {.head_size = 4, .window = 5, .buckets = 4}));
      const std::vector<Text> texts = generate(model, prompts, o);
      REQUIRE(texts.size() == prompts.size());
      for (std::size_t i = 0; i < prompts.size(); ++i) {
        CAPTURE(i);
        CHECK(texts[i].size() == 40);
        CHECK(texts[i] == alone(model, prompts[i], o, i));
      }
      CHECK(texts[0] != texts[3]);  // of the same prompt, by generators of their own
    }
}

TEST_CASE("generation ends a row at a stop token or where the callback says so, and the others go on") {
  const GPT model = talker(small_talker());
  const std::vector<Text> prompts = {{1, 2, 3}, {4}, {5, 6}};
  GenerateOptions o{.count = 12, .seed = 7};
  const std::vector<Text> whole = generate(model, prompts, o);
  o.stop_tokens = {whole[0][4], whole[1][2]};
  const auto cut = [&](Text text) {
    const auto end = std::ranges::find_first_of(text, o.stop_tokens);
    if (end != text.end()) text.erase(end + 1, text.end());
    return text;
  };
  const std::vector<Text> stopped = generate(model, prompts, o);
  for (std::size_t i = 0; i < 3; ++i) CHECK(stopped[i] == cut(whole[i]));
  CHECK(stopped[0].size() <= 5);
  CHECK(stopped[1].size() <= 3);

  o.stop_tokens = {};
  std::map<Index, Text> streamed;
  o.on_token = [&](Index row, std::int32_t token) {
    streamed[row].push_back(token);
    return row != 1 || streamed[row].size() < 4;
  };
  const std::vector<Text> ended = generate(model, prompts, o);
  CHECK(ended[0] == whole[0]);
  CHECK(ended[1] == Text(whole[1].begin(), whole[1].begin() + 4));
  CHECK(ended[2] == whole[2]);
  for (Index row = 0; row < 3; ++row) CHECK(streamed[row] == ended[static_cast<std::size_t>(row)]);
}

TEST_CASE("generation of many prompts: none, no tokens, and what is refused") {
  const GPT model = talker(small_talker());
  CHECK(generate(model, std::vector<Text>{}, GenerateOptions{}).empty());
  CHECK(generate(model, std::vector<Text>{{1}, {2}}, {.count = 0}) == std::vector<Text>{{}, {}});
  check_errors({
      {"generate: prompt 1 is empty; it needs one token or more",
       [&] {
         generate(model, std::vector<Text>{{1}, {}}, GenerateOptions{});
       }},
      {"sampling: top_p is 0; it must lie in (0, 1]",
       [&] {
         generate(model, std::vector<Text>{{1}}, {.sampling = {.top_p = 0}});
       }},
  });
}

TEST_CASE("beams: picking rows of the states is all that a beam search needs") {
  GPTOptions o = small_talker();
  o.vocabulary = 4;
  for (const std::string name : {"softmax", "linear", "window", "lsh", "bahdanau", "favor", "top-k"}) {
    CAPTURE(name);
    GPT model = talker(o, mechanism_by_name(name, {.heads = 2, .head_size = 4, .window = 3, .top_k = 3, .buckets = 4}));
    to(model, DType::float64);
    const NoTape guard;
    // All 4^4 texts, each by the whole model.
    std::vector<std::pair<double, Text>> all;
    for (std::int32_t n = 0; n < 256; ++n) {
      const Text text = {2, 1, n / 64, n / 16 % 4, n / 4 % 4, n % 4};
      all.emplace_back(log_probability(model, text) - log_probability(model, {2, 1}), text);
    }
    std::ranges::sort(all, [](const auto& a, const auto& b) { return a.first > b.first; });
    const auto wide = beam_search(model, {2, 1}, 4, 64);
    REQUIRE(wide.size() == 64);
    for (std::size_t i = 0; i < 64; ++i) {
      CHECK(wide[i].first == doctest::Approx(all[i].first).epsilon(1e-10));
      CHECK(wide[i].second == all[i].second);
    }
    for (const auto& [score, text] : beam_search(model, {2, 1}, 4, 3))  // may miss the best, and knows what it found
      CHECK(score == doctest::Approx(log_probability(model, text) - log_probability(model, {2, 1})).epsilon(1e-10));
  }
}

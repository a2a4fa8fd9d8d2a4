// Sampling and generation from one prompt and many, and beam search, which picks rows of states. Above 400 lines: all
// use the same small models and plain loops.
#include <cmath>
#include <heed/heed.hpp>
#include <map>

#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;

namespace {

using Text = std::vector<std::int32_t>;

// A model whose logits differ clearly.
GPT talker(const GPTOptions& o, const MechanismFactory& mechanism = softmax_mechanism) {
  Rng rng(3);
  GPT model(o, rng, mechanism);
  for (const NamedParameter& p : named_parameters(model))
    p.parameter->copy_(*p.parameter + rng.normal(p.parameter->shape(), 0, 0.3));
  return model;
}

GPTOptions small_talker() {
  return {.vocabulary = 11, .context = 16, .blocks = {.layers = 2, .attention = {.width = 8, .heads = 2}}};
}

Text alone(const GPT& model, const Text& prompt, const GenerateOptions& o, std::size_t row) {
  Rng rng(o.seed, row);
  return generate(model, prompt, o.count, o.sampling, rng);
}

// The sum of log p of the tokens of `text` after the first, computed by the whole model.
double log_probability(const GPT& model, const Text& text) {
  const auto n = static_cast<Index>(text.size());
  const Tensor logits = log_softmax(model(Tensor::from(text, {1, n})), 2);
  double sum = 0;
  for (Index t = 1; t < n; ++t) sum += logits.at({0, t - 1, text[static_cast<std::size_t>(t)]});
  return sum;
}

// A model whose next token depends on the last two tokens. Its logits are a table [V + 1, V, V]; the first index is V
// if there is no token before the last.
struct TableState {
  Tensor table;
  std::vector<Text> seen = {};

  Tensor read(const Tensor& tokens, const Tensor& lengths) {
    const Index rows = tokens.dim(0), V = table.dim(1);
    seen.resize(static_cast<std::size_t>(rows));
    Tensor logits = Tensor::empty({rows, V}, DType::float64);
    for (Index i = 0; i < rows; ++i) {
      Text& text = seen[static_cast<std::size_t>(i)];
      for (Index t = 0; t < (lengths.defined() ? static_cast<Index>(lengths.at({i})) : tokens.dim(1)); ++t)
        text.push_back(static_cast<std::int32_t>(tokens.at({i, t})));
      const Index before = text.size() > 1 ? text[text.size() - 2] : V;
      logits[i].copy_(table[before][text.back()]);
    }
    return logits;
  }
  TableState rows(const Tensor& indices) const {
    TableState s{table};
    for (const std::int32_t i : ids_of(indices)) s.seen.push_back(seen[static_cast<std::size_t>(i)]);
    return s;
  }
};

TableState table_model(Index V, std::uint64_t seed) { return {normal({V + 1, V, V}, seed) * 2.0}; }

double penalty_of(const BeamOptions& o, std::size_t length) {
  const auto n = static_cast<double>(length);
  if (o.penalty == LengthPenalty::none) return 1;
  return o.penalty == LengthPenalty::average ? std::pow(n, o.alpha) : std::pow((5 + n) / 6, o.alpha);
}

// All texts that a search could return for the prompt, the best first.
std::vector<Hypothesis> all_texts(const TableState& model, const Text& prompt, const BeamOptions& o) {
  std::vector<Hypothesis> all, live = {{}};
  for (Index n = 1; n <= o.count; ++n) {
    std::vector<Hypothesis> longer;
    for (const Hypothesis& h : live) {
      Text text = prompt;
      text.insert(text.end(), h.tokens.begin(), h.tokens.end());
      TableState fresh = model;
      const Tensor logits =
          log_softmax(fresh.read(Tensor::from(text, {1, static_cast<Index>(text.size())}), {}), 1).select(0, 0);
      for (std::int32_t token = 0; token < logits.dim(0); ++token) {
        if (std::ranges::find(o.never, token) != o.never.end()) continue;
        Hypothesis next = h;
        next.tokens.push_back(token);
        next.log_probability += logits.at({token});
        next.score = next.log_probability / penalty_of(o, next.tokens.size());
        const bool ends = std::ranges::find(o.stop_tokens, token) != o.stop_tokens.end() || n == o.count;
        (ends ? all : longer).push_back(next);
      }
    }
    live = longer;
  }
  std::ranges::stable_sort(all, [](const Hypothesis& a, const Hypothesis& b) { return a.score > b.score; });
  return all;
}

void check_same(const std::vector<Hypothesis>& got, const std::vector<Hypothesis>& expected) {
  REQUIRE(got.size() <= expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    CHECK(got[i].tokens == expected[i].tokens);
    CHECK(got[i].score == doctest::Approx(expected[i].score).epsilon(1e-12));
    CHECK(got[i].log_probability == doctest::Approx(expected[i].log_probability).epsilon(1e-12));
  }
}

}  // namespace

TEST_CASE("generation continues beyond the context, and is reproducible from the same seed") {
  Rng rng(3);
  GPT model({.vocabulary = 11, .context = 8, .blocks = {.layers = 2, .attention = {.width = 8, .heads = 2}}}, rng);
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
  const Tensor none = Tensor::full({3}, -INFINITY), lost = Tensor::from({1, kNaN, 3});
  check_errors({
      {"sampling: temperature is inf; it must be 0 or more, and finite",
       [&] { sample(logits, {.temperature = INFINITY}, rng); }},
      {"sample: all logits are -inf", [&] { sample(none, {.temperature = 0}, rng); }},
      {"sample: all logits are -inf", [&] { sample(none, {}, rng); }},
      {"sample: logit 1 is nan", [&] { sample(lost, {.temperature = 0}, rng); }},
  });
}

TEST_CASE("sampling: the token is found by walking from the most probable one, in vocabularies of any shape") {
  // Plain loops over all tokens in their order, in float64.
  const auto walked = [](const std::vector<double>& logits, const SamplingOptions& o, double u) {
    std::vector<std::size_t> order(logits.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
    if (o.temperature == 0) return order[0];
    const auto k = static_cast<std::size_t>(o.top_k);
    if (k > 0 && k < order.size()) order.resize(k);
    std::vector<double> weights;
    double sum = 0, reached = 0;
    for (const std::size_t i : order) {
      weights.push_back(std::exp((logits[i] - logits[order[0]]) / o.temperature));
      sum += weights.back();
    }
    std::size_t kept = 0;
    while (kept < weights.size() && (o.top_p == 1 || reached < o.top_p * sum)) reached += weights[kept++];
    double rest = u * reached;
    for (std::size_t i = 0; i < kept; ++i)
      if ((rest -= weights[i]) < 0) return order[i];
    return order[kept - 1];
  };
  const SamplingOptions options[] = {{},
                                     {.temperature = 0},
                                     {.temperature = 0.7},
                                     {.temperature = 30},
                                     {.temperature = 1e-300},
                                     {.top_k = 1},
                                     {.top_k = 40},
                                     {.top_k = 100000},
                                     {.temperature = 20, .top_k = 300},
                                     {.top_p = 0.9},
                                     {.temperature = 20, .top_p = 0.3},
                                     {.top_p = 1e-9},
                                     {.top_k = 50, .top_p = 0.8},
                                     {.temperature = 5, .top_k = 700, .top_p = 0.99}};
  int number = 0;
  for (const DType type : {DType::float32, DType::float64})
    for (const Index size : {1, 2, 7, 1000, 5003})
      for (const double spread : {0.0, 1e-3, 1.0, 6.0}) {
        if (!test::is_taken(number++, 3)) continue;
        Rng values(static_cast<std::uint64_t>(size));
        Tensor logits = (values.normal({size}) * spread).to(type);
        if (size > 2) logits[2].fill_(-INFINITY), logits[1].copy_(logits[0]);
        const std::vector<double> plain = logits.to_vector<double>();
        Rng rng(5), same(5);
        int wrong = 0;
        for (const SamplingOptions& o : options)
          for (int i = 0; i < (test::kSanitized ? 4 : 20); ++i)
            wrong += static_cast<std::size_t>(sample(logits, o, rng)) != walked(plain, o, same.uniform());
        CAPTURE(size);
        CAPTURE(spread);
        CHECK(wrong == 0);
      }
}

TEST_CASE("prompts of different length together: each text equals that of its prompt alone, beyond the context too") {
  const std::vector<Text> prompts = {
      {1, 2, 3}, {4}, {5, 6, 7, 8, 9, 10, 1, 2, 3, 4, 5, 6}, {1, 2, 3}, {9, 8, 7, 6, 5, 4, 3, 2, 1, 0,
                                                                         1, 2, 3, 4, 5, 6, 7, 8, 9, 10}};
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
      CHECK(texts[0] != texts[3]);  // the same prompt, but different generators
    }
}

TEST_CASE("generation ends a row at a stop token or if the callback returns false, and other rows continue") {
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

TEST_CASE("generation from many prompts: no prompts, no tokens, and errors") {
  const GPT model = talker(small_talker());
  CHECK(generate(model, std::vector<Text>{}, GenerateOptions{}).empty());
  CHECK(generate(model, std::vector<Text>{{1}, {2}}, {.count = 0}) == std::vector<Text>{{}, {}});
  check_errors({
      {"generate: prompt 1 is empty; it must have at least one token",
       [&] {
         generate(model, std::vector<Text>{{1}, {}}, GenerateOptions{});
       }},
      {"generate: stop token 11 is not in the vocabulary of 11 tokens",
       [&] { generate(model, std::vector<Text>(1, {1}), {.stop_tokens = Text(1, 11)}); }},
      {"sampling: top_p is 0; it must be in (0, 1]",
       [&] { generate(model, std::vector<Text>{{1}}, {.sampling = {.top_p = 0}}); }},
  });
}

TEST_CASE("beams: one that is wide enough finds the best texts of a GPT, with any mechanism") {
  GPTOptions o = small_talker();
  o.vocabulary = 4;
  const std::vector<Text> prompts = {{2, 1}};
  for (const std::string name : {"softmax", "linear", "window", "lsh", "bahdanau", "favor", "top-k"}) {
    CAPTURE(name);
    GPT model = talker(o, mechanism_by_name(name, {.heads = 2, .head_size = 4, .window = 3, .top_k = 3, .buckets = 4}));
    to(model, DType::float64);
    const NoTape guard;
    const auto log_p = [&](const Text& made) {
      Text text = prompts[0];
      text.insert(text.end(), made.begin(), made.end());
      return log_probability(model, text) - log_probability(model, prompts[0]);
    };
    std::vector<Hypothesis> all;  // all 4^4 texts, each by the whole model
    for (std::int32_t n = 0; n < 256; ++n) {
      const Text text = {n / 64, n / 16 % 4, n / 4 % 4, n % 4};
      all.push_back({.tokens = text, .log_probability = log_p(text), .score = log_p(text)});
    }
    std::ranges::sort(all, [](const Hypothesis& a, const Hypothesis& b) { return a.score > b.score; });
    const BeamOptions wide{.beam = 64, .n_best = 64, .count = 4, .penalty = LengthPenalty::none};
    const auto found = beam_search(model.make_state(), prompts, wide);
    REQUIRE(found[0].size() == 64);
    for (std::size_t i = 0; i < 64; ++i) {
      CHECK(found[0][i].score == doctest::Approx(all[i].score).epsilon(1e-10));
      CHECK(found[0][i].tokens == all[i].tokens);
    }
    // A narrow beam may miss the best text, but its probabilities are correct.
    const auto narrow = beam_search(model.make_state(), prompts, {.beam = 3, .n_best = 3, .count = 4});
    for (const Hypothesis& h : narrow[0]) CHECK(h.log_probability == doctest::Approx(log_p(h.tokens)).epsilon(1e-10));
  }
}

TEST_CASE("beams: stop tokens, length penalties and forbidden tokens, against all texts") {
  for (const std::uint64_t seed : {1, 2, 3}) {
    const TableState model = table_model(4, seed);
    for (const LengthPenalty penalty : {LengthPenalty::none, LengthPenalty::average, LengthPenalty::gnmt}) {
      for (const double alpha : {0.0, 0.6, 1.5}) {
        for (const Text& never : {Text{}, Text{2}}) {
          const BeamOptions o{.beam = 300,
                              .n_best = 20,
                              .count = 5,
                              .stop_tokens = {0},
                              .never = never,
                              .penalty = penalty,
                              .alpha = alpha,
                              .exact = true};
          const std::vector<Text> prompts = {{1}, {3, 2}};
          const auto found = beam_search(model, prompts, o);
          for (std::size_t row = 0; row < 2; ++row) {
            REQUIRE(found[row].size() == 20);
            check_same(found[row], all_texts(model, prompts[row], o));
          }
        }
      }
    }
  }
}

TEST_CASE("beams: a beam of one is greedy, rows are independent, and each row has its own token limit") {
  const TableState model = table_model(7, 5);
  const std::vector<Text> prompts = {{1}, {3, 2}, {6, 6, 5}, {4}};
  const auto greedy = generate(model, prompts, {.count = 9, .sampling = {.temperature = 0}, .stop_tokens = {0}});
  const auto narrow = beam_search(model, prompts, {.beam = 1, .count = 9, .stop_tokens = {0}});
  for (std::size_t i = 0; i < prompts.size(); ++i) CHECK(narrow[i][0].tokens == greedy[i]);

  const BeamOptions o{.beam = 3, .n_best = 2, .counts = {9, 0, 2, 5}, .stop_tokens = {0}};
  std::vector<Index> done;
  BeamOptions with_callback = o;
  with_callback.on_done = [&](Index row) { done.push_back(row); };
  const auto all = beam_search(model, prompts, with_callback);
  std::ranges::sort(done);
  CHECK(done == std::vector<Index>{0, 1, 2, 3});
  CHECK(all[1].empty());
  for (const std::size_t i : {0u, 2u, 3u}) {
    BeamOptions one = o;
    one.counts = {o.counts[i]};
    const auto alone = beam_search(model, std::span(prompts).subspan(i, 1), one)[0];
    REQUIRE(alone.size() == all[i].size());
    check_same(all[i], alone);
    for (const Hypothesis& h : all[i]) CHECK(static_cast<Index>(h.tokens.size()) <= o.counts[i]);
  }
  const auto some = generate(model, prompts, {.seed = 4, .counts = {9, 0, 5, 1}});
  CHECK(some[1].empty());
  CHECK(some[2].size() == 5);
  CHECK(some[3].size() == 1);
}

TEST_CASE("beams: errors") {
  const TableState model = table_model(3, 5);
  const std::vector<Text> prompts = {{1}, {2}}, empty = {{1}, {}};
  check_errors({
      {"beam_search: beam is 0 and n_best is 1", [&] { beam_search(model, prompts, {.beam = 0}); }},
      {"beam is 2 and n_best is 3; both must be 1 or more, and n_best at most beam",
       [&] { beam_search(model, prompts, {.beam = 2, .n_best = 3}); }},
      {"alpha is -1; it must be 0 or more", [&] { beam_search(model, prompts, {.alpha = -1}); }},
      {"beam_search: stop token 9 is not in", [&] { beam_search(model, prompts, {.stop_tokens = Text(1, 9)}); }},
      {"beam_search: never token -1 is not", [&] { beam_search(model, prompts, {.never = Text(1, -1)}); }},
      {"beam_search: prompt 1 is empty", [&] { beam_search(model, empty); }},
      {"got 1 counts for 2 prompts", [&] { beam_search(model, prompts, {.counts = {3}}); }},
  });
  TableState lost{model.table.clone()}, nothing{model.table.clone()};
  lost.table.select(2, 2).fill_(kNaN), nothing.table.fill_(-INFINITY);
  CHECK(contains(error_of([&] { beam_search(lost, prompts); }), "beam_search: logit 2 is nan; it must be a number"));
  CHECK(contains(error_of([&] { beam_search(nothing, prompts); }), "beam_search: all logits are -inf"));
}

TEST_CASE("lengths of prompts for a decode state must be from 1 to the number of tokens") {
  DecodeState state(table_model(3, 5));
  const Tensor tokens = Tensor::zeros({2, 3}, DType::int32);
  CHECK(state.read(tokens, Tensor::from<std::int32_t>({3, 1})).dim(0) == 2);
  const auto read = [&](const Tensor& lengths) { return [&, lengths] { state.read(tokens, lengths); }; };
  check_errors({
      {"DecodeState: the length of row 1 is 0 and tokens are [2, 3] int32; it must be from 1 to 3",
       read(Tensor::from<std::int32_t>({3, 0}))},
      {"the length of row 0 is 4", read(Tensor::from<std::int32_t>({4, 1}))},
      {"DecodeState: tokens are [2, 3] int32 and lengths are [3] int32; lengths must be int32 [rows]",
       read(Tensor::from<std::int32_t>({3, 1, 1}))},
      {"lengths are [2] float32", read(Tensor::from({3, 1}))},
  });
}

TEST_CASE("sample: min_p keeps tokens near the likeliest one") {
  // Probabilities relative to the likeliest token: 1, 0.5, 0.25, 0.1.
  const Tensor logits = Tensor::from({0.0, std::log(0.5), std::log(0.25), std::log(0.1)});
  const auto drawn = [&](double min_p) {
    Rng rng(3);
    std::vector<int> counts(4);
    for (int i = 0; i < 4000; ++i) ++counts[static_cast<std::size_t>(sample(logits, {.min_p = min_p}, rng))];
    return counts;
  };
  CHECK(drawn(0.6) == std::vector<int>{4000, 0, 0, 0});
  const std::vector<int> two = drawn(0.3);
  CHECK(two[2] + two[3] == 0);
  CHECK(two[0] == doctest::Approx(4000 / 1.5).epsilon(0.05));
  CHECK(drawn(0.05)[3] > 100);
  CHECK(test::error_of([&] { drawn(1.5); }) == "sampling: min_p is 1.5; it must be from 0 to 1");
}

TEST_CASE("sample: the penalty changes the logits of seen tokens, each once") {
  Rng rng(1);
  const Tensor logits = Tensor::from({3.0, 2.0, -1.0, -1.5});
  const SamplingOptions o{.temperature = 0, .repetition_penalty = 2};
  CHECK(sample(logits, o, rng) == 0);
  CHECK(sample(logits, o, rng, std::vector<std::int32_t>{0, 0, 0}) == 1);  // 1.5 is below 2
  const Tensor negative = Tensor::from({-1.0, -1.5});
  CHECK(sample(negative, o, rng, std::vector<std::int32_t>{0}) == 1);  // -2 is below -1.5
  CHECK(test::error_of([&] { sample(logits, o, rng, std::vector<std::int32_t>{4}); }) ==
        "sample: token of `seen` 4 is not in the vocabulary of 4 tokens");
  CHECK(test::error_of([&] { sample(logits, {.repetition_penalty = 0}, rng); }) ==
        "sampling: repetition_penalty is 0; it must be above 0, and finite");
}

// flex_attention() as a mechanism: the conformance kit, decoding, parameters, cached masks.
#include <atomic>
#include <heed/heed.hpp>
#include <heed/layers/model.hpp>

#include "tests/layers/attention/naive_mechanisms.hpp"
#include "tests/layers/attention/state_file.hpp"
#include "tests/support.hpp"
//
#include <heed/layers/attention/conformance_doctest.hpp>

using namespace heed;
using namespace heed::test;

namespace {

// Softmax of score(j) over the visible keys with sees(j), with a sink of this logit.
template <class Score, class Sees>
NaiveWeights with_sink(const NaiveRow& row, double sink, Score&& score, Sees&& sees) {
  NaiveWeights w(row.seen.size(), 0.0);
  double top = sink, sum = 0;
  const auto value = [&](Index j) { return score(j, row.scaled(j) + row.added(j)); };
  for (const Index j : row.seen)
    if (sees(j)) top = std::max(top, value(j));
  for (std::size_t n = 0; n < w.size(); ++n)
    if (sees(row.seen[n])) sum += w[n] = std::exp(value(row.seen[n]) - top);
  for (double& x : w) x = sum == 0 ? 0 : x / (sum + std::exp(sink - top));
  return w;
}

Tensor grown(Index n, Index size) { return Rng(static_cast<std::uint64_t>(n)).normal({n, size}); }

}  // namespace

TEST_CASE("conformance: a user-defined score function, mask and sinks") {
  const auto f = [](auto s, int, int h, int q, int k) { return 3 * tanh(s / 3) - 0.05 * (h + 1) * abs(q - k); };
  const auto mask = [](int, int h, int q, int k) { return (q - k < 70 && k - q < 70 + h) || k % 5 == 0; };
  // A soft cap keeps logits away from 300, and a sink takes a share of every row.
  check_conformance_in_test(
      [&](Index, Rng&) {
        return FlexAttention(
            {.score_mod = f, .mask_mod = mask, .mask_by_head = true, .sinks = Tensor::from({0.5, -1, 2, 0})});
      },
      thinned({.normalised = false,
               .reference = naive_by([](const NaiveRow& row) {
                 return with_sink(
                     row, row.array("sinks")[row.head],
                     [&](Index j, double s) {
                       return 3 * std::tanh(s / 3) -
                              0.05 * static_cast<double>((row.head + 1) * std::abs(row.position - j));
                     },
                     [&](Index j) {
                       return (row.position - j < 70 && j - row.position < 70 + row.head) || j % 5 == 0;
                     });
               }),
               .save_and_load = through_file}));
}

TEST_CASE("conformance: trained biases and caps, of lambdas and of kernels") {
  const auto bias_of = [](const NaiveRow& row, Index j) {
    return row.array("score.0")[row.head * 9 + std::clamp<Index>(j - row.position, -4, 4) + 4];
  };
  const auto naive = naive_by([=](const NaiveRow& row) {
    return with_sink(
        row, -1e300, [&](Index j, double s) { return s + bias_of(row, j); }, [](Index) { return true; });
  });
  check_conformance_in_test(
      [](Index, Rng&) { return FlexAttention({.score_mod = relative_bias(grown(4, 9)), .trained = true}); },
      thinned({.reference = naive, .of_sizes = [](Index heads, Index) -> MechanismFactory {
                 return [heads](Index, Rng&) {
                   return FlexAttention({.score_mod = relative_bias(grown(heads, 9)), .trained = true});
                 };
               }}));
  const auto f = [](auto s, int, int h, int q, int k, auto by) { return s + by(h, std::clamp(k - q, -4, 4) + 4); };
  check_conformance_in_test(
      [f](Index, Rng&) {
        return FlexAttention({.score_mod = {f, grown(4, 9)}, .trained = true});
      },
      thinned({.reference = naive}));
  check_conformance_in_test(
      [](Index, Rng&) {
        return FlexAttention({.score_mod = soft_cap(Tensor::from({2, 5, 20, 50})), .trained = true});
      },
      thinned({.reference = naive_by([](const NaiveRow& row) {
                 const double c = row.array("score.0")[row.head];
                 return with_sink(
                     row, -1e300, [&](Index, double s) { return c * std::tanh(s / c); }, [](Index) { return true; });
               })}));
}

TEST_CASE("conformance: a sliding window with attention sinks, while decoding") {
  check_conformance_in_test(
      [](Index, Rng&) { return FlexAttention({.name = "window-sinks", .mask_mod = sliding_window(20, 4)}); },
      thinned({.reference = naive_by([](const NaiveRow& row) {
                 return pattern_of(row, [p = row.position](Index j) { return std::abs(p - j) < 20 || j < 4; });
               })}));
}

TEST_CASE("FlexAttention: rows of different length decode as each alone, with functions of positions") {
  const NoTape guard;
  const auto f = [](auto s, int, int h, int q, int k) { return s - 0.1 * (h + 1) * (q - k); };
  const FlexAttention m({.score_mod = f, .mask_mod = sliding_window(6, 2), .sinks = Tensor::zeros({2})});
  AttentionState all = m.make_state();
  std::vector<AttentionState> alone;
  for (int b = 0; b < 3; ++b) alone.push_back(m.make_state());
  const Tensor x = Rng(1).normal({3, 2, 40, 8});
  const Index prompts[] = {20, 1, 9};
  all.apply(x.slice(2, 0, 20), x.slice(2, 0, 20), x.slice(2, 0, 20),
            {.key_lengths = Tensor::from<std::int32_t>({20, 1, 9})});
  for (Index b = 0; b < 3; ++b) {
    const Tensor row = x.slice(0, b, b + 1).slice(2, 0, prompts[b]);
    alone[static_cast<std::size_t>(b)].apply(row, row, row);
  }
  for (Index t = 20; t < 40; ++t) {
    const Tensor next = x.slice(2, t, t + 1), y = all.apply(next, next, next);
    for (Index b = 0; b < 3; ++b) {
      const Tensor one = next.slice(0, b, b + 1);
      CHECK(close(y.slice(0, b, b + 1), alone[static_cast<std::size_t>(b)].apply(one, one, one), 1e-6, 1e-6));
    }
  }
}

TEST_CASE("FlexAttention: parameters have names, train, convert and copy, and without `trained` there are none") {
  const auto make = [](Rng& rng) {
    return MultiHeadAttention({.width = 16, .heads = 2}, rng,
                              FlexAttention({.score_mod = t5_bias(rng.normal({2, 8}), {.max_distance = 10}),
                                             .trained = true,
                                             .sinks = Tensor::from({0.5, -0.5})}));
  };
  Rng rng(1);
  MultiHeadAttention layer = make(rng);
  std::vector<std::string> names;
  for (const NamedParameter& p : named_parameters(layer)) names.push_back(p.name);
  CHECK(std::count(names.begin(), names.end(), "mechanism.score.0") == 1);
  CHECK(std::count(names.begin(), names.end(), "mechanism.sinks") == 1);
  const Tensor x = rng.normal({2, 12, 16});
  {
    Tape tape;
    tape.backward(sum(square(layer(x, {.causal = true}))));
  }
  auto* flex = layer.mechanism.get<FlexAttention>();
  CHECK(max(abs(flex->score()[0].grad())).item() > 0);
  CHECK(max(abs(flex->sinks().grad())).item() > 0);
  Rng other(2);
  MultiHeadAttention copy = clone(layer, [&] { return make(other); });
  CHECK(same_bits(copy(x), layer(x)));
  to(copy, DType::float64);
  CHECK(close(copy(x.to(DType::float64)), layer(x), 1e-4, 1e-5));
  FlexAttention fixed({.score_mod = alibi(2)});
  CHECK(named_parameters(fixed).empty());
  CHECK(named_buffers(fixed).size() == 1);
  CHECK(same_bits(*named_buffers(fixed)[0].buffer, alibi_slopes(2)));
}

TEST_CASE("FlexAttention: a mask is made once for each number of queries and keys") {
  std::atomic<int> calls = 0;
  const FlexAttention m({.mask_mod = [&calls](int, int, int q, int k) { return ++calls, q - k < 300; }});
  const Tensor x = normal({2, 2, 256, 4}), longer = normal({2, 2, 320, 4});
  const Tensor first = m.apply(x, x, x, {});
  CHECK(calls == 256 * 256);  // all blocks are full, so the function is not called again
  CHECK(same_bits(m.apply(x, x, x, {}), first));
  CHECK(calls == 256 * 256);
  m.apply(longer, longer, longer, {});
  CHECK(calls > 256 * 256 + 320 * 320 - 1);
}

TEST_CASE("FlexAttention: a model with the named mechanism alibi trains") {
  Rng rng(1);
  GPT model({.vocabulary = 7,
             .context = 16,
             .blocks = {.layers = 1, .attention = {.width = 16, .heads = 2}},
             .positions = PositionKind::none},
            rng, mechanism_by_name("alibi", {.heads = 2, .head_size = 8}));
  AdamW optimizer(named_parameters(model), {.lr = 1e-2});
  const Tensor text = rng.integers({4, 16}, 0, 7);
  double before = 0, after = 0;
  for (int step = 0; step < 30; ++step) {
    Tape tape;
    const Tensor loss = cross_entropy(model(text.slice(1, 0, 15)).reshape({60, 7}), text.slice(1, 1, 16).reshape({60}));
    (step == 0 ? before : after) = loss.item();
    zero_grad(model);
    tape.backward(loss);
    optimizer.step();
  }
  CHECK(after < 0.7 * before);
  check_errors({{"attention: alibi needs the number of heads", [] { mechanism_by_name("alibi"); }},
                {"FlexAttention: sinks is [2, 2] float64", [] {
                   FlexAttention({.sinks = normal({2, 2})});
                 }}});
}

// Mechanisms with gates and delta rules: the conformance kit against the weights of their definitions, and errors.
#include <doctest/doctest.h>

#include <heed/heed.hpp>
#include <heed/layers/attention/conformance_doctest.hpp>

#include "tests/layers/attention/naive_row.hpp"
#include "tests/layers/attention/state_file.hpp"
#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;

namespace {

constexpr StateRule kRules[] = {StateRule::retention, StateRule::ssd,         StateRule::gla,
                                StateRule::delta,     StateRule::gated_delta, StateRule::kda};

double naive_sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double naive_softplus(double x) { return std::log1p(std::exp(-std::fabs(x))) + std::max(x, 0.0); }

// x, or with a delta rule its direction after SiLU.
std::vector<double> direction(const double* x, Index size, bool delta) {
  std::vector<double> y(x, x + size);
  if (!delta) return y;
  double sum = 1e-6;
  for (double& c : y) c *= naive_sigmoid(c), sum += c * c;
  for (double& c : y) c /= std::sqrt(sum);
  return y;
}

// The query is carried back through the positions: at each, its product with the key is the weight of the value, and
// what remains of it is the product with the state before.
NaiveWeights naive_state_weights(StateRule rule, const NaiveRow& row) {
  const bool delta = rule == StateRule::delta || rule == StateRule::gated_delta || rule == StateRule::kda;
  const auto input = [&](const char* name, Index j, Index c) {
    const Tensor& x = row.values.at(name);
    return x.dense().ptr<double>()[(row.key_head * row.keys + j) * x.dim(3) + c];
  };
  const auto gate = [&](Index j, Index c) {
    if (rule == StateRule::retention) return 1 - std::exp2(-5.0 - static_cast<double>(row.head));
    if (rule == StateRule::delta) return 1.0;
    if (rule == StateRule::gla) return std::pow(naive_sigmoid(input("input gate", j, c)), 1.0 / 16);
    const double step = naive_softplus(input("input gate", j, rule == StateRule::kda ? c : 0));
    return std::exp(-std::exp(row.array("decay")[row.head]) * step);
  };
  std::vector<double> m = direction(row.q, row.size, delta);
  if (rule != StateRule::ssd)
    for (double& c : m) c /= std::sqrt(static_cast<double>(row.size));
  NaiveWeights w(row.seen.size(), 0.0);
  for (std::size_t n = row.seen.size(); n-- > 0;) {
    const Index j = row.seen[n];
    const std::vector<double> k = direction(row.k + j * row.size, row.size, delta);
    double dot = 0;
    for (std::size_t c = 0; c < m.size(); ++c) dot += m[c] * k[c];
    w[n] = dot;
    if (delta) w[n] *= naive_sigmoid(input("input rate", j, 0));
    if (rule == StateRule::ssd) w[n] *= naive_softplus(input("input gate", j, 0));
    for (std::size_t c = 0; c < m.size(); ++c) {
      if (delta) m[c] -= w[n] * k[c];
      m[c] *= gate(j, static_cast<Index>(c));
    }
    if (rule == StateRule::ssd && j == row.position) w[n] += row.array("skip")[row.head];
  }
  return w;
}

MechanismFactory factory_of(StateRule rule, Index heads, Index size) {
  return [=](Index, Rng& rng) { return StateAttention(rule, heads, size, rng); };
}

}  // namespace

TEST_CASE("conformance: mechanisms with gates and delta rules pass all that they declare") {
  for (const StateRule rule : kRules) {
    CAPTURE(static_cast<int>(rule));
    const auto reference = naive_by([rule](const NaiveRow& row) { return naive_state_weights(rule, row); });
    const ConformanceReport report = check_conformance_in_test(
        factory_of(rule, 4, 8),
        thinned({.normalised = false,
                 .reference = reference,
                 .of_sizes = [rule](Index heads, Index size) { return factory_of(rule, heads, size); },
                 .save_and_load = through_file}));
    CHECK(report.checks.size() >= thinned(18u, 6u));
  }
}

TEST_CASE("mechanisms with gates and delta rules train in a GPT and decode as it computes") {
  for (const StateRule rule : kRules) {
    CAPTURE(static_cast<int>(rule));
    Rng rng(1);
    const GPT model({.vocabulary = 11, .context = 80, .blocks = {.layers = 2, .attention = {.width = 16, .heads = 2}}},
                    rng, factory_of(rule, 2, 8));
    Tensor tokens = Tensor::zeros({2, 80}, DType::int32);
    for (Index i = 0; i < tokens.numel(); ++i) tokens.ptr<std::int32_t>()[i] = static_cast<std::int32_t>(i * i % 11);
    const Tensor logits = model(tokens);
    DecodeState state = model.make_state();
    for (Index t = 0; t < 80; t += t == 0 ? 70 : 1)
      CHECK(close(state.read(tokens.slice(1, t, t == 0 ? 70 : t + 1)), logits.select(1, t == 0 ? 69 : t), 1e-4, 1e-4));
  }
}

TEST_CASE("mechanisms with gates and delta rules: errors") {
  Rng rng(1);
  const StateAttention delta(StateRule::gated_delta, 2, 4, rng);
  const Tensor q = Tensor::zeros({1, 2, 5, 4}), k = Tensor::zeros({1, 1, 5, 4}), gate = Tensor::zeros({1, 2, 5, 1});
  CHECK(contains(error_of([&] { StateAttention(StateRule::gla, 0, 4, rng); }), "heads is 0 and size is 4"));
  const auto error = [&](const Tensor& x, const Tensor& y, const std::vector<Tensor>& inputs) {
    return error_of([&] { delta.apply(x, y, y, {}, inputs); });
  };
  CHECK(contains(error(q, k, {gate, gate}),
                 "gated-delta attention: q is [1, 2, 5, 4] float32 and k is [1, 1, 5, 4] float32"));
  CHECK(contains(error(k, k, {gate, gate}), "it must have the heads of the parameters, 2"));
  CHECK(contains(error(q, q, {gate}), "1 inputs are given; there must be 2"));
  CHECK(contains(error(q, q, {gate, q}), "rate is [1, 2, 5, 4] float32; it must be [1, 2, 5, 1]"));
  AttentionState state = delta.make_state();
  CHECK(contains(error_of([&] {
                   state.apply(q, q, q, {.bias = Tensor::zeros({5})}, std::vector<Tensor>{gate, gate});
                 }),
                 "this state has no scores of single pairs to add a bias to"));
}

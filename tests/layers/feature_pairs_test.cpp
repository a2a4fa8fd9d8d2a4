// Linear attention with one map for the queries and another for the keys.
#include <algorithm>
#include <cmath>
#include <functional>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/norms.hpp>
#include <heed/autograd/shape_ops.hpp>
#include <heed/layers/attention/linear.hpp>
#include <numeric>

#include "tests/layers/naive_row.hpp"
#include "tests/support.hpp"
//
#include <heed/layers/attention/conformance_doctest.hpp>

using namespace heed;
using namespace heed::test;

namespace {

using Row = std::vector<double>;
using RowMap = std::function<Row(const Row& x)>;

// The definition, a pair at a time: sum_j f(q_i).g(k_j) e^b_j v_j / (sum_j f(q_i).g(k_j) e^b_j + eps).
auto naive_pairs(const RowMap& f, const RowMap& g) {
  return naive_by([f, g](const NaiveRow& row) {
    const Row query = f(Row(row.q, row.q + row.size));
    NaiveWeights weights;
    double sum = 1e-6;
    for (const Index j : row.seen) {
      const Row key = g(Row(row.k + j * row.size, row.k + (j + 1) * row.size));
      weights.push_back(row.factor(j) * std::inner_product(query.begin(), query.end(), key.begin(), 0.0));
      sum += weights.back();
    }
    for (double& w : weights) w /= sum;
    return weights;
  });
}

Row naive_softmax_of(Row x) {
  double sum = 0;
  const double most = *std::max_element(x.begin(), x.end());
  for (double& value : x) sum += value = std::exp(value - most);
  for (double& value : x) value /= sum;
  return x;
}

Tensor over_features(In x) { return softmax(x, -1); }

// Two maps that have nothing in common but that both make 2 D features.
Tensor sigmoids_and_softmax(In q) { return concatenate({sigmoid(q), softmax(q, -1)}, -1); }
Tensor softplus_and_halves(In k) { return concatenate({softplus(k), Tensor::full(k.shape(), 0.5, k.dtype())}, -1); }

}  // namespace

TEST_CASE("conformance: linear attention with softmax over the features of queries and keys") {
  const ConformanceReport report = check_conformance_in_test(
      [](Index, Rng&) { return LinearAttention{{.query_map = over_features, .key_map = over_features}}; },
      {.reference = naive_pairs(naive_softmax_of, naive_softmax_of)});
  CHECK(report.checks.size() >= 17);
}

TEST_CASE("conformance: linear attention with two different maps, to more features than a key has") {
  const auto f = [](const Row& x) {
    Row y;
    for (const double value : x) y.push_back(1 / (1 + std::exp(-value)));
    for (const double value : naive_softmax_of(x)) y.push_back(value);
    return y;
  };
  const auto g = [](const Row& x) {
    Row y;
    for (const double value : x) y.push_back(value > 30 ? value : std::log1p(std::exp(value)));
    y.resize(2 * x.size(), 0.5);
    return y;
  };
  const ConformanceReport report = check_conformance_in_test(
      [](Index, Rng&) { return LinearAttention{{.query_map = sigmoids_and_softmax, .key_map = softplus_and_halves}}; },
      {.reference = naive_pairs(f, g)});
  CHECK(report.checks.size() >= 17);
}

TEST_CASE("linear attention with maps of one's own: a bias of the keys is a factor, and eps counts") {
  const Tensor q = normal({2, 4, 7, 3}, 1), k = normal({2, 2, 9, 3}, 2), v = normal({2, 2, 9, 5}, 3),
               bias = normal({2, 1, 1, 9}, 4);
  const LinearAttention linear{{.query_map = over_features, .key_map = sigmoids_and_softmax, .eps = 0.5}};
  CHECK(contains(error_of([&] { linear.apply(q, k, v, {}); }), "linear_attention: q is [2, 4, 7, 3] float64 but k is"));
  const LinearAttention fitting{
      {.query_map = sigmoids_and_softmax, .key_map = softplus_and_halves, .eps = 0.5}};
  const Tensor y = fitting.apply(q, k, v, {.causal = true, .bias = bias});
  const Tensor f = sigmoids_and_softmax(q), g = softplus_and_halves(k);
  for (Index i = 0; i < 7; ++i) {
    double sum = 0.5, mixed = 0;
    for (Index j = 0; j <= i + 2; ++j) {
      double weight = 0;
      for (Index r = 0; r < 6; ++r) weight += f.at({1, 3, i, r}) * g.at({1, 1, j, r});
      weight *= std::exp(bias.at({1, 0, 0, j}));
      sum += weight, mixed += weight * v.at({1, 1, j, 4});
    }
    CHECK(y.at({1, 3, i, 4}) == doctest::Approx(mixed / sum).epsilon(1e-12));
  }
}

TEST_CASE("linear attention refuses negative features, unless it is told that no weight is negative") {
  const Tensor x = abs(normal({1, 2, 3, 4})) + 0.1, v = normal({1, 2, 3, 4});
  Tensor minus = x.clone();
  minus.slice(2, 2, 3).fill_(-1);
  const auto itself = [](In y) { return y.tensor(); };
  const LinearFeatures identity{.feature_map = FeatureMap::identity},
      own{.query_map = itself, .key_map = itself};
  const std::string ending =
      " made the feature -1; features must be 0 or more, or signed_features true where no weight f(q) . g(k) is "
      "negative";
  LinearAttentionSums sums;
  check_errors({
      {"linear_attention: the identity of q" + ending, [&] { linear_attention(minus, x, v, {}, identity); }},
      {"linear_attention: the identity of k" + ending, [&] { linear_attention(x, minus, v, {}, identity); }},
      {"linear_attention: query_map" + ending, [&] { linear_attention(minus, x, v, {}, own); }},
      {"linear_attention: key_map" + ending, [&] { linear_attention_step(x, minus, v, sums, {}, own); }},
      {"linear_attention: the identity of q" + ending,
       [&] { LinearAttention{{.feature_map = FeatureMap::identity}}.apply(minus, x, v, {}); }},
  });
  // What padding holds is no feature.
  const Tensor lengths = Tensor::from<std::int32_t>({2});
  const AttentionCall padded{.key_lengths = lengths};
  CHECK(same_bits(linear_attention(x, minus, v, padded, own), linear_attention(x, minus, v, padded, identity)));
  LinearFeatures allowed = identity;
  allowed.signed_features = true;
  CHECK(close(linear_attention(minus, minus, v, {}, allowed), linear_attention(-minus, -minus, v, {}, allowed), 1e-12, 1e-12));
  CHECK(LinearAttention{{.feature_map = FeatureMap::identity, .signed_features = true}}
            .apply(minus, minus, v, {})
            .defined());
}

TEST_CASE("linear attention with maps of one's own: what does not fit is refused") {
  const Tensor x = normal({1, 2, 3, 4});
  LinearAttentionSums sums;
  const auto shorter = [](In y) { return y->slice(2, 0, 2); };
  const auto other_dtype = [](In y) { return y->to(DType::float32); };
  const auto nothing = [](In) { return Tensor(); };
  check_errors({
      {"linear_attention: query_map is given alone; there must be both of query_map and key_map, or none",
       [&] { linear_attention(x, x, x, {}, {.query_map = over_features}); }},
      {"linear_attention: key_map is given alone",
       [&] { linear_attention(x, x, x, {}, {.key_map = over_features}); }},
      {"linear_attention: key_map is given alone",
       [&] { linear_attention_step(x, x, x, sums, {}, {.key_map = over_features}); }},
      {"linear_attention: query_map made [1, 2, 2, 4] float64 of [1, 2, 3, 4] float64; all but the last axis must stay "
       "the same",
       [&] { linear_attention(x, x, x, {}, {.query_map = shorter, .key_map = over_features}); }},
      {"linear_attention: key_map made [1, 2, 3, 4] float32 of [1, 2, 3, 4] float64",
       [&] { linear_attention(x, x, x, {}, {.query_map = over_features, .key_map = other_dtype}); }},
      {"linear_attention: key_map made undefined of [1, 2, 3, 4] float64",
       [&] { linear_attention(x, x, x, {}, {.query_map = over_features, .key_map = nothing}); }},
  });
  CHECK(!sums.sums.defined());
}

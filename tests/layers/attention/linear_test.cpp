// Linear attention and related mechanisms.
//
#include <heed/layers/attention/conformance_doctest.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/norms.hpp>
#include <heed/autograd/shape_ops.hpp>
#include <heed/heed.hpp>
#include <heed/layers/attention/linear.hpp>
#include <numeric>

#include "tests/layers/attention/mechanism_inputs.hpp"
#include "tests/layers/attention/naive_row.hpp"
#include "tests/support.hpp"

using namespace heed;
using test::check_errors;
using test::close;
using test::contains;
using test::error_of;
using test::same_bits;
using namespace heed::test;

TEST_CASE("mechanisms refuse invalid sizes and operands") {
  Rng rng(1);
  const Tensor x = Tensor::zeros({1, 1, 3, 4});
  check_errors({
      {"random_features: features is 0 and size is 4; both must be 1 or more", [] { random_features(0, 4, 1); }},
      {"random_features: features is 4 and size is 0; both must be 1 or more", [] { random_features(4, 0, 1); }},
      {"favor attention: q is [1, 1, 3, 4] float32, k is [1, 1, 3, 4] float32 and the features are [2, 3] float32; "
       "they must be [features, width]",
       [&] { FavorAttention(3, {.features = 2}).apply(x, x, x, {}); }},
      {"FavorAttention: size is 0; it must be 1 or more", [] { FavorAttention(0); }},
      {"linformer attention: e is [2, 3] float32 and f is [3, 2] float32; both must be [rows, positions]",
       [&] {
         LinformerAttention linformer(3, 2, rng);
         linformer.f = Parameter(Tensor::zeros({3, 2}));
         linformer.apply(x, x, x, {});
       }},
      {"LinformerAttention: positions is 0 and rows is 2; both must be 1 or more",
       [&] { LinformerAttention(0, 2, rng); }},
      {"luong-local attention: there are 2147483648 keys in all heads; there must be fewer than 2^31",
       [] {
         const Tensor one = Tensor::zeros({1, 1, 1, 1}), many = one.expand({1, 1, Index{1} << 31, 1});
         Rng none(1);
         LuongLocalAttention(1, 1, none).apply(one, many, many, {});
       }},
  });
}

// Articles describe Efficient attention as linear attention with f(q) = softmax(q) and f(k) = exp(k).
TEST_CASE("Efficient attention is the form with a sum per feature, and not the one with a sum per query") {
  Rng rng(1);
  const auto random = [&](Index n) { return rng.normal({2, 1, n, 4}, 0, 1, DType::float64); };
  const Tensor q = random(5), k = random(7), v = random(7), features = exp(k), by_d = softmax(q, 3);
  const Tensor efficient = efficient_attention(q, k, v);
  const Tensor own_sums = matmul(by_d, matmul((features / sum(features, {2}, true)).transpose(2, 3), v));
  const Tensor pairs = matmul(by_d, features.transpose(2, 3)), one_sum = matmul(pairs / sum(pairs, {3}, true), v);
  CHECK(close(efficient, own_sums, 1e-12, 1e-13));
  CHECK(max(abs(efficient - one_sum)).item() > 0.05);
  CHECK(close(linear_attention(q, k, v, {}, {.feature_map = FeatureMap::exp}), one_sum, 1e-12, 1e-13));
}

TEST_CASE("linear attention as a mechanism takes a bias per key, and refuses calls that need single weights") {
  const AttentionMechanism linear(LinearAttention{});
  const Tensor x = Rng(1).normal({2, 2, 5, 4}), bias = Rng(2).normal({2, 1, 1, 5});
  CHECK(close(linear.apply(x, x, x, {.bias = bias}), linear_attention(x, x, x, {.bias = bias}), 0, 1e-7));
  CHECK(close(linear.apply(x, x, x, {.bias = bias[0][0][0]}), linear_attention(x, x, x, {.bias = bias[0][0][0]}), 0,
              1e-7));
  const auto refused = [&](const AttentionCall& call, const char* what) {
    CHECK(contains(
        error_of([&] { linear.apply(x, x, x, call); }),
        std::string("linear attention does not support ") + what + ": weights of single pairs are never computed"));
  };
  refused({.mask = Tensor::ones({5, 5}, DType::bool8)}, "a mask of single pairs");
  refused({.bias = Tensor::ones({5, 5})}, "a bias of single pairs");
  refused({.dropout = 0.1}, "dropout on weights");
}

TEST_CASE("weights of a mechanism reproduce its output from the values") {
  Rng rng(1);
  const Tensor q = Rng(1).normal({2, 4, 7, 8}), k = Rng(2).normal({2, 4, 9, 8}), v = Rng(3).normal({2, 4, 9, 5});
  const AttentionCall call{.causal = true, .key_lengths = Tensor::from<std::int32_t>({9, 8})};
  for (const std::string& name : mechanism_names()) {
    CAPTURE(name);
    const AttentionMechanism m =
        mechanism_by_name(name, {.heads = 4, .head_size = 8, .value_size = 5, .context = 64})(0, rng);
    if (!m.capabilities().weights) continue;  // values that depend on the distance
    const std::vector<Tensor> inputs = test::inputs_for(m, q, k);
    const Tensor w = m.weights(q, k, call, inputs);
    CHECK(w.shape() == Shape{2, 4, 7, 9});
    CHECK(close(matmul(w, v), m.apply(q, k, v, call, inputs), 0, 1e-5));
    CHECK(close(sum(w, {-1}), Tensor::ones({2, 4, 7}), 0, 1e-4));  // less by 1e-6 / sum in linear
  }
}

TEST_CASE("taylor: a query or a key of zeros has the cosine 0 with all, and no gradient") {
  const AttentionMechanism taylor(TaylorAttention{});
  for (const DType dtype : {DType::float64, DType::float32})
    for (const bool causal : {false, true}) {
      const double tolerance = dtype == DType::float64 ? 1e-13 : 1e-5;
      Tensor q = test::normal({1, 1, 3, 4}, 1, dtype), k = test::normal({1, 1, 3, 4}, 2, dtype);
      const Tensor v = test::normal({1, 1, 3, 2}, 3, dtype);
      q.slice(2, 2, 3).fill_(0), k.slice(2, 0, 1).fill_(0);
      Tape tape;
      const Tensor wq = tape.watch(q), wk = tape.watch(k), wv = tape.watch(v);
      const Tensor y = taylor.apply(wq, wk, wv, {.causal = causal});
      tape.backward(y, test::normal(y.shape(), 4, dtype));
      // The last query has equal weights for all keys, and every query an average weight for the first key. With
      // causality, the first query has only that key.
      for (Index c = 0; c < 2; ++c) {
        const double sum = v.at({0, 0, 0, c}) + v.at({0, 0, 1, c}) + v.at({0, 0, 2, c});
        CHECK(y.at({0, 0, 2, c}) == doctest::Approx(sum / (3 + 1e-6)).epsilon(tolerance));
        if (causal) CHECK(y.at({0, 0, 0, c}) == doctest::Approx(v.at({0, 0, 0, c}) / (1 + 1e-6)).epsilon(tolerance));
      }
      for (const Tensor& gradient : {tape.grad(wq), tape.grad(wk), tape.grad(wv)})
        for (const double x : gradient.to_vector<double>()) CHECK_UNARY(std::isfinite(x));
      for (const double x : tape.grad(wq)[0][0][2].to_vector<double>()) CHECK_UNARY(x == 0);
      for (const double x : tape.grad(wk)[0][0][0].to_vector<double>()) CHECK_UNARY(x == 0);
      CHECK(tape.grad(wq).at({0, 0, 1, 0}) != 0);
    }
}

TEST_CASE("taylor: a key opposite to the query, alone, gives finite values and gradients") {
  const AttentionMechanism taylor(TaylorAttention{});
  for (const DType dtype : {DType::float64, DType::float32})
    for (const std::uint64_t seed : {1u, 2u, 3u, 4u, 5u}) {
      const Tensor q = test::normal({1, 2, 1, 16}, seed, dtype), v = test::normal({1, 2, 1, 3}, 9, dtype);
      Tape tape;
      const Tensor wq = tape.watch(q), wk = tape.watch(q * -2), wv = tape.watch(v);
      const Tensor y = taylor.apply(wq, wk, wv, {.causal = true});
      tape.backward(y, Tensor::ones(y.shape(), dtype));
      // The weight is 0 except for rounding, and eps is larger than the rounding error.
      CHECK(close(y.detach(), Tensor::zeros(y.shape(), dtype), 0, 0.7));
      for (const Tensor& gradient : {tape.grad(wq), tape.grad(wk), tape.grad(wv)})
        for (const double x : gradient.to_vector<double>()) CHECK_UNARY(std::isfinite(x));
      AttentionState state = taylor.make_state();
      CHECK(close(state.apply(q, q * -2, v), y.detach(), 1e-4, 1e-4));
    }
  // Without rounding, the value and all gradients are 0.
  const Tensor q = Tensor::from({-3, 0, 0, 0}).view({1, 1, 1, 4}), k = Tensor::from({2, 0, 0, 0}).view({1, 1, 1, 4});
  Tape tape;
  const Tensor wq = tape.watch(q), wk = tape.watch(k), wv = tape.watch(k);
  const Tensor y = taylor.apply(wq, wk, wv, {});
  tape.backward(y, Tensor::ones(y.shape()));
  for (const Tensor& x : {y, tape.grad(wq), tape.grad(wk), tape.grad(wv)})
    for (const double value : x.to_vector<double>()) CHECK_UNARY(value == 0);
}

TEST_CASE("favor: features are a function of seed, layer and redraw, orthogonal in blocks, as long as normal vectors") {
  const Tensor w = random_features(12, 5, 3, 2, 1);
  CHECK(same_bits(w, random_features(12, 5, 3, 2, 1)));
  for (const Tensor& other :
       {random_features(12, 5, 4, 2, 1), random_features(12, 5, 3, 1, 1), random_features(12, 5, 3, 2, 0)})
    CHECK_FALSE(same_bits(w, other));
  for (const Index first : {0, 5, 10}) {
    const Tensor block = w.slice(0, first, std::min<Index>(12, first + 5)), products = matmul(block, block.t());
    for (Index i = 0; i < products.dim(0); ++i)
      for (Index j = 0; j < i; ++j) CHECK(std::fabs(products.at({i, j})) < 1e-5 * products.at({i, i}));
  }
  double squares = 0;
  const Tensor many = random_features(4000, 16, 1);
  for (double x : many.to_vector<double>()) squares += x * x;
  CHECK(squares / 4000 == doctest::Approx(16).epsilon(0.05));
}

TEST_CASE("favor: many features approximate softmax attention") {
  // The variance grows as exp(|q + k|^2), so queries and keys are short.
  const Tensor q = Rng(1).normal({1, 2, 20, 8}, 0, 0.5), k = Rng(2).normal({1, 2, 20, 8}, 0, 0.5),
               v = Rng(3).normal({1, 2, 20, 4});
  const auto error_with = [&](Index features) {
    const FavorAttention favor(8, {.features = features, .seed = 5});
    const Tensor difference = favor.apply(q, k, v, {.causal = true}) - attention(q, k, v, {.causal = true});
    double max_difference = 0;
    for (double x : difference.to_vector<double>()) max_difference = std::max(max_difference, std::fabs(x));
    return max_difference;
  };
  CHECK(error_with(8192) < 0.15);
  CHECK(error_with(8192) < 0.5 * error_with(64));
}

TEST_CASE("linformer equals its definition, and keys beyond the length do not count") {
  Rng rng(1);
  LinformerAttention m(12, 4, rng);
  const Tensor q = Rng(1).normal({2, 2, 5, 8}), k = Rng(2).normal({2, 2, 10, 8}), v = Rng(3).normal({2, 2, 10, 6});
  const Tensor e = m.e.slice(1, 0, 10), f = m.f.slice(1, 0, 10);
  const auto by_hand = [&](const Tensor& keys, const Tensor& values) {
    const Tensor scores = matmul(q, matmul(e, keys).transpose(2, 3)) * (1 / std::sqrt(8.0));
    return matmul(softmax(scores, -1), matmul(f, values));
  };
  const AttentionMechanism mechanism(std::move(m));
  CHECK(close(mechanism.apply(q, k, v, {}), by_hand(k, v), 0, 1e-5));
  const Tensor mask = Tensor::from<std::int32_t>({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}).view({1, 1, 10, 1}) < 7;
  Tensor dirty_k = k.clone(), dirty_v = v.clone();
  dirty_k.slice(2, 7, 10).fill_(NAN), dirty_v.slice(2, 7, 10).fill_(NAN);
  const Tensor lengths = Tensor::from<std::int32_t>({7, 7});
  CHECK(close(mechanism.apply(q, dirty_k, dirty_v, {.key_lengths = lengths}),
              by_hand(where(mask, k, 0.0), where(mask, v, 0.0)), 0, 1e-5));
  CHECK(close(mechanism.apply(q, k, v, {.key_lengths = Tensor::from<std::int32_t>({0, 7})})[0],
              Tensor::zeros({2, 5, 6}), 0, 0));
  const Tensor long_k = Rng(2).normal({2, 2, 13, 8});
  CHECK(contains(error_of([&] { mechanism.apply(q, long_k, long_k, {}); }), "there may be at most 12 positions"));
  CHECK(contains(error_of([&] { mechanism.apply(q, k, v, {.causal = true}); }), "its rows of keys mix all positions"));
}

namespace {

using Row = std::vector<double>;
using RowMap = std::function<Row(const Row& x)>;

// The definition, pair by pair: sum_j f(q_i).g(k_j) e^b_j v_j / (sum_j f(q_i).g(k_j) e^b_j + eps).
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
  const double max_value = *std::max_element(x.begin(), x.end());
  for (double& value : x) sum += value = std::exp(value - max_value);
  for (double& value : x) value /= sum;
  return x;
}

Tensor over_features(In x) { return softmax(x, -1); }

// Two different maps, both to 2 D features.
Tensor sigmoids_and_softmax(In q) { return concatenate({sigmoid(q), softmax(q, -1)}, -1); }
Tensor softplus_and_halves(In k) { return concatenate({softplus(k), Tensor::full(k.shape(), 0.5, k.dtype())}, -1); }

}  // namespace

TEST_CASE("conformance: linear attention with softmax over the features of queries and keys") {
  const ConformanceReport report = check_conformance_in_test(
      [](Index, Rng&) { return LinearAttention{{.query_map = over_features, .key_map = over_features}}; },
      thinned({.reference = naive_pairs(naive_softmax_of, naive_softmax_of)}));
  CHECK(report.checks.size() >= thinned(17u, 8u));
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
      thinned({.reference = naive_pairs(f, g)}));
  CHECK(report.checks.size() >= thinned(17u, 8u));
}

TEST_CASE("linear attention with user-defined maps: a bias of the keys is a factor, and eps counts") {
  const Tensor q = normal({2, 4, 7, 3}, 1), k = normal({2, 2, 9, 3}, 2), v = normal({2, 2, 9, 5}, 3),
               bias = normal({2, 1, 1, 9}, 4);
  const LinearAttention linear{{.query_map = over_features, .key_map = sigmoids_and_softmax, .eps = 0.5}};
  CHECK(contains(error_of([&] { linear.apply(q, k, v, {}); }), "linear_attention: q is [2, 4, 7, 3] float64 but k is"));
  const LinearAttention fitting{{.query_map = sigmoids_and_softmax, .key_map = softplus_and_halves, .eps = 0.5}};
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

TEST_CASE("linear attention refuses negative features, unless an option declares that no weight is negative") {
  const Tensor x = abs(normal({1, 2, 3, 4})) + 0.1, v = normal({1, 2, 3, 4});
  Tensor minus = x.clone();
  minus.slice(2, 2, 3).fill_(-1);
  const auto itself = [](In y) { return y.tensor(); };
  const LinearFeatures identity{.feature_map = FeatureMap::identity}, own{.query_map = itself, .key_map = itself};
  const std::string ending =
      " is -1; features must be 0 or more, or signed_features must be true (if no weight f(q) . g(k) is "
      "negative)";
  LinearAttentionSums sums;
  check_errors({
      {"linear_attention: a feature from the identity of q" + ending,
       [&] { linear_attention(minus, x, v, {}, identity); }},
      {"linear_attention: a feature from the identity of k" + ending,
       [&] { linear_attention(x, minus, v, {}, identity); }},
      {"linear_attention: a feature from query_map" + ending, [&] { linear_attention(minus, x, v, {}, own); }},
      {"linear_attention: a feature from key_map" + ending, [&] { linear_attention_step(x, minus, v, sums, {}, own); }},
      {"linear_attention: a feature from the identity of q" + ending,
       [&] { LinearAttention{{.feature_map = FeatureMap::identity}}.apply(minus, x, v, {}); }},
  });
  // Values in padding are not features.
  const Tensor lengths = Tensor::from<std::int32_t>({2});
  const AttentionCall padded{.key_lengths = lengths};
  CHECK(same_bits(linear_attention(x, minus, v, padded, own), linear_attention(x, minus, v, padded, identity)));
  LinearFeatures allowed = identity;
  allowed.signed_features = true;
  CHECK(close(linear_attention(minus, minus, v, {}, allowed), linear_attention(-minus, -minus, v, {}, allowed), 1e-12,
              1e-12));
  CHECK(LinearAttention{{.feature_map = FeatureMap::identity, .signed_features = true}}
            .apply(minus, minus, v, {})
            .defined());
}

TEST_CASE("linear attention with user-defined maps: errors") {
  const Tensor x = normal({1, 2, 3, 4});
  LinearAttentionSums sums;
  const auto shorter = [](In y) { return y->slice(2, 0, 2); };
  const auto other_dtype = [](In y) { return y->to(DType::float32); };
  const auto nothing = [](In) { return Tensor(); };
  check_errors({
      {"linear_attention: query_map is given alone; give both query_map and key_map, or neither",
       [&] { linear_attention(x, x, x, {}, {.query_map = over_features}); }},
      {"linear_attention: key_map is given alone", [&] { linear_attention(x, x, x, {}, {.key_map = over_features}); }},
      {"linear_attention: key_map is given alone",
       [&] { linear_attention_step(x, x, x, sums, {}, {.key_map = over_features}); }},
      {"linear_attention: query_map returned [1, 2, 2, 4] float64 for [1, 2, 3, 4] float64; only the last axis may "
       "differ",
       [&] { linear_attention(x, x, x, {}, {.query_map = shorter, .key_map = over_features}); }},
      {"linear_attention: key_map returned [1, 2, 3, 4] float32 for [1, 2, 3, 4] float64",
       [&] { linear_attention(x, x, x, {}, {.query_map = over_features, .key_map = other_dtype}); }},
      {"linear_attention: key_map returned undefined for [1, 2, 3, 4] float64",
       [&] { linear_attention(x, x, x, {}, {.query_map = over_features, .key_map = nothing}); }},
  });
  CHECK(!sums.sums.defined());
}

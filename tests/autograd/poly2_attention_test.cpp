// Attention with weights (q . k)^2 by features, and the choice between features and squared scores, against plain loops
// over all pairs.
#include <array>
#include <heed/autograd/detail/poly2_attention.hpp>
#include <heed/autograd/reductions.hpp>
#include <heed/autograd/tape.hpp>
#include <heed/core/memory.hpp>
#include <heed/core/parallel.hpp>
#include <vector>

#include "tests/autograd/linear_reference.hpp"
#include "tests/core/levels.hpp"
#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;

namespace {

// Output and gradients by features, for any shapes.
AttentionResult by_features(const AttentionData& x, bool causal, DType dtype, double eps = 1e-6) {
  Tape tape;
  const Tensor q = tape.watch(x.q.to(dtype)), k = tape.watch(x.k.to(dtype)), v = tape.watch(x.v.to(dtype));
  const Tensor y = heed::detail::poly2_by_features(q, k, v, causal, eps);
  tape.backward(y, x.dout.to(dtype));
  AttentionResult r;
  r.out = y.detach(), r.dq = tape.grad(q), r.dk = tape.grad(k), r.dv = tape.grad(v);
  return r;
}

// Inputs that float32 represents exactly.
AttentionData float32_data(const AttentionSize& s, std::uint64_t seed) {
  AttentionData x = random_attention(s, seed);
  for (Tensor* t : {&x.q, &x.k, &x.v, &x.dout}) *t = t->to(DType::float32).to(DType::float64);
  return x;
}

void check_features(const AttentionSize& s, bool causal) {
  CAPTURE(s.queries);
  CAPTURE(s.keys);
  CAPTURE(s.width);
  CAPTURE(s.value_width);
  CAPTURE(causal);
  const AttentionData x = float32_data(s, 7);
  const AttentionResult expected = naive_linear(x, {{.causal = causal}, {.feature_map = FeatureMap::poly2}});
  on_each_float_level([&] {
    CHECK(attention_error(by_features(x, causal, DType::float64), expected) < 1e-11);
    // The first queries have one or two visible keys with small weights, so the terms of dq and dk cancel.
    CHECK(attention_error(by_features(x, causal, DType::float32), expected, s.width == 1 ? 1 : 0.1) < 3e-5);
  });
}

}  // namespace

TEST_CASE("poly2 by features is its definition, for any number of queries, keys, heads and features") {
  for (const bool causal : {false, true}) {
    for (const Index n : {1, 63, 64, 65, 200}) check_features({1, 2, 1, n, n, 7, 9}, causal);
    check_features({2, 4, 2, 90, 210, 5, 3}, causal);
    check_features({2, 2, 2, 210, 90, 5, 3}, causal);
    check_features({1, 3, 3, 150, 130, 1, 1}, causal);
    check_features({1, 1, 1, 330, 300, 17, 16}, causal);
    check_features({1, 2, 2, 9, 0, 4, 4}, causal);
    check_features({1, 2, 2, 0, 9, 4, 4}, causal);
    check_features({1, 2, 2, 1, 300, 24, 8}, causal);
  }
}

TEST_CASE("poly2: scores and features, between which the shapes choose, agree, with lengths, masks and biases") {
  const FeatureMap map = FeatureMap::poly2;
  int number = 0;
  for (const bool causal : {false, true})
    for (const std::int32_t n : {8, 300})  // by scores, and by features
      for (const Index kv_heads : {4, 2}) {
        if (!is_taken(number++, 3)) continue;
        CAPTURE(causal);
        CAPTURE(n);
        const AttentionData x = float32_data({2, 4, kv_heads, n, n + 3, 6, 5}, 3);
        Rng rng(8);
        const auto check = [&](const AttentionCall& call) {
          const LinearCase o{call, {.feature_map = map}};
          const AttentionResult expected = naive_linear(x, o), got = run_linear(x, o);
          CHECK(attention_error(got, expected) < 1e-11);
          CHECK(attention_error(run_linear(x, o, DType::float32), expected, 0.1) < 3e-6);
        };
        check({.causal = causal, .key_lengths = Tensor::from(std::vector<std::int32_t>{n, 3}, {2})});
        check({.causal = causal, .key_mask = random_mask({2, n + 3}, 0.6, 10)});
        check({.causal = causal, .bias = rng.normal({2, 4, 1, n + 3}, 0, 2, DType::float64)});
        check({.causal = causal, .bias = rng.normal({1, n + 3}, 0, 2, DType::float64)});
      }
}

TEST_CASE("poly2 by features: later keys and values do not change earlier outputs, even if they are NaN") {
  for (const DType dtype : {DType::float32, DType::float64}) {
    const AttentionData x = random_attention({1, 2, 2, 150, 150, 6, 5}, 4);
    const auto output = [&](const AttentionData& of) {
      return heed::detail::poly2_by_features(of.q.to(dtype), of.k.to(dtype), of.v.to(dtype), true, 1e-6);
    };
    AttentionData later = x;
    later.k = x.k.clone(), later.v = x.v.clone();
    later.k.slice(2, 100, 150).fill_(1e3);
    later.v.slice(2, 100, 150).fill_(kNaN);
    const auto before_100 = [](const Tensor& y) { return y.slice(2, 0, 100).contiguous(); };
    CHECK(close(before_100(output(later)), before_100(output(x)), 1e-6, 1e-6));
    CHECK(std::isnan(output(later).at({0, 1, 120, 2})));
  }
}

TEST_CASE("poly2 by features has the same bits at any number of threads") {
  const AttentionData x = random_attention({2, 4, 2, 300, 330, 12, 10}, 5);
  const int before = threads();
  set_threads(1);
  const AttentionResult one = by_features(x, true, DType::float32);
  for (const int n : {2, 3, 8}) {
    set_threads(n);
    const AttentionResult many = by_features(x, true, DType::float32);
    CHECK(same_bits(many.out, one.out));
    CHECK(same_bits(many.dq, one.dq));
    CHECK(same_bits(many.dk, one.dk));
    CHECK(same_bits(many.dv, one.dv));
  }
  set_threads(before);
}

TEST_CASE("poly2's memory grows with the length, and features are never held") {
  const auto bytes_at = [](Index n) {
    const AttentionData x = random_attention({1, 1, 1, n, n, 16, 16});
    const Tensor q = x.q.to(DType::float32), k = x.k.to(DType::float32), v = x.v.to(DType::float32);
    const std::size_t start = memory_use().current;
    reset_peak_memory();
    Tape tape;
    const LinearFeatures features{.feature_map = FeatureMap::poly2};
    const Tensor y = linear_attention(tape.watch(q), tape.watch(k), tape.watch(v), {.causal = true}, features);
    tape.backward(y, y.detach());
    return static_cast<double>(memory_use().peak - start);
  };
  const double at_1024 = bytes_at(1024), at_8192 = bytes_at(8192);
  CHECK(at_8192 < 9.5 * at_1024);
  CHECK(at_8192 < 8192.0 * 136 * 8);  // one float64 tensor of features
}

TEST_CASE("poly2 by features: gradients that are not needed are not computed, and others do not change") {
  const AttentionData x = random_attention({1, 2, 2, 150, 150, 6, 5}, 6);
  const AttentionResult all = by_features(x, true, DType::float64);
  for (int number = 0; number < 3; ++number) {
    Tape tape;
    const auto watched = [&](const Tensor& t, int i) { return i == number ? tape.watch(t) : t; };
    const Tensor q = watched(x.q, 0), k = watched(x.k, 1), v = watched(x.v, 2);
    tape.backward(heed::detail::poly2_by_features(q, k, v, true, 1e-6), x.dout);
    const std::array<Tensor, 3> inputs = {q, k, v}, gradients = {all.dq, all.dk, all.dv};
    const auto i = static_cast<std::size_t>(number);
    CHECK(same_bits(tape.grad(inputs[i]), gradients[i]));
  }
}

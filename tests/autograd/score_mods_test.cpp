// Built-in score functions, which are kernels, against plain loops and against the same functions as lambdas.
#include <heed/autograd/flex_attention.hpp>
#include <heed/autograd/tape.hpp>
#include <heed/core/parallel.hpp>

#include "tests/autograd/attention_reference.hpp"
#include "tests/core/levels.hpp"

using namespace heed;
using namespace heed::test;

namespace {

struct ModRun {
  AttentionResult a;
  Tensor dparameter;
};

ModRun run_mod(const AttentionData& x, const ScoreMod& mod, const AttentionCall& call, DType dtype) {
  Tape tape;
  const Tensor q = tape.watch(x.q.to(dtype)), k = tape.watch(x.k.to(dtype)), v = tape.watch(x.v.to(dtype)),
               p = tape.watch(mod.parameters()[0].to(dtype));
  ModRun r;
  r.a.out = flex_attention(q, k, v, {.score_mod = mod.with(std::vector<Tensor>{p})}, call);
  tape.backward(r.a.out, x.dout.to(dtype));
  r.a.out = r.a.out.detach();
  r.a.dq = tape.grad(q), r.a.dk = tape.grad(k), r.a.dv = tape.grad(v), r.dparameter = tape.grad(p);
  return r;
}

// by(s, h, q, k, ds, g) adds ds * derivative to the gradient of a parameter [rows, n].
using AddGradient = std::function<void(double s, Index h, Index q, Index k, double ds, double* g)>;

void check_mod(const ScoreMod& mod, const NaiveRules& rules, const AddGradient& add, double spread = 1) {
  for (const AttentionSize& s : {AttentionSize{2, 4, 2, 37, 37, 8, 8},
                                 {1, 4, 4, 130, 300, 5, 9},
                                 {1, 4, 1, 300, 70, 8, 8},
                                 {2, 4, 2, 1, 600, 8, 8}}) {
    const AttentionData x = random_attention(s, 3, spread);
    const std::vector<double> queries = x.q.to_vector<double>(), keys = x.k.to_vector<double>();
    for (const bool causal : {false, true}) {
      const AttentionCall call{.causal = causal};
      CAPTURE(s.queries);
      CAPTURE(causal);
      const AttentionResult expected = naive_attention(x, call, nullptr, {}, rules);
      Tensor g = Tensor::zeros(mod.parameters()[0].shape(), DType::float64);
      const double* ds = expected.dscores.ptr<double>();
      for (Index b = 0; b < s.batch; ++b)
        for (Index h = 0; h < s.heads; ++h)
          for (Index i = 0; i < s.queries; ++i)
            for (Index j = 0; j < s.keys; ++j) {
              const double* q = queries.data() + ((b * s.heads + h) * s.queries + i) * s.width;
              const double* k =
                  keys.data() + ((b * s.kv_heads + h / (s.heads / s.kv_heads)) * s.keys + j) * s.width;
              double score = 0;
              for (Index c = 0; c < s.width; ++c) score += q[c] * k[c] / std::sqrt(static_cast<double>(s.width));
              add(score, h, i + s.keys - s.queries, j, *ds++, g.ptr<double>());
            }
      double scale = 1;
      for (double y : g.to_vector<double>()) scale = std::max(scale, std::fabs(y));
      on_each_float_level([&] {
        const ModRun doubles = run_mod(x, mod, call, DType::float64), floats = run_mod(x, mod, call, DType::float32);
        CHECK(attention_error(doubles.a, expected) < 1e-12);
        CHECK(attention_error(floats.a, expected) < 1e-5);
        CHECK(worst(doubles.dparameter, g, 0, 1e-12 * scale) < 1);
        CHECK(worst(floats.dparameter, g, 0, 2e-5 * scale) < 1);
        CHECK(worst(flex_attention(x.q, x.k, x.v, {.score_mod = mod}, call), expected.out, 0, 1e-12) < 1);
      });
    }
  }
}

double distance(Index q, Index k) { return std::fabs(static_cast<double>(q - k)); }

}  // namespace

TEST_CASE("alibi: slopes equal the paper's, values and gradients equal plain loops") {
  CHECK(close(alibi_slopes(8), Tensor::from({0.5, 0.25, 0.125, 1.0 / 16, 1.0 / 32, 1.0 / 64, 1.0 / 128, 1.0 / 256}),
              1e-7, 0));
  // 12 heads: the slopes of 8 heads and every other slope of 16 heads, as in get_slopes() of the paper's code.
  const Tensor twelve = alibi_slopes(12);
  CHECK(close(twelve.slice(0, 0, 8), alibi_slopes(8), 0, 1e-12));
  for (Index i = 0; i < 4; ++i)
    CHECK(twelve.at({8 + i}) == doctest::Approx(std::exp2(-0.5 * (2 * static_cast<double>(i) + 1))).epsilon(1e-6));
  const Tensor slopes = alibi_slopes(4);
  check_mod(alibi(4), {[&](double s, Index, Index h, Index q, Index k) { return s - slopes.at({h}) * distance(q, k); }},
            [](double, Index h, Index q, Index k, double ds, double* g) { g[h] -= ds * distance(q, k); });
}

TEST_CASE("soft_cap: values and gradients equal plain loops, with one cap for all heads and one per head") {
  for (const bool each : {false, true}) {
    const Tensor c = each ? Tensor::from({2, 3, 5, 50}) : Tensor::from({4});
    const auto of = [&](Index h) { return c.at({each ? h : 0}); };
    check_mod(
        soft_cap(c),
        {[&](double s, Index, Index h, Index, Index) { return of(h) * std::tanh(s / of(h)); },
         [&](double s, Index, Index h, Index, Index) { return 1 - std::pow(std::tanh(s / of(h)), 2); }},
        [&](double s, Index h, Index, Index, double ds, double* g) {
          const double t = std::tanh(s / of(h));
          g[each ? h : 0] += ds * (t - s / of(h) * (1 - t * t));
        },
        3);
  }
}

TEST_CASE("relative_bias: values and gradients equal plain loops, clipped") {
  for (const Index rows : {1, 4}) {
    const Tensor table = normal({rows, 2 * 40 + 1}, 3, DType::float32);
    const auto at = [&](Index h, Index q, Index k) {
      return (rows == 1 ? 0 : h) * 81 + std::clamp<Index>(k - q, -40, 40) + 40;
    };
    check_mod(relative_bias(table), {[&](double s, Index, Index h, Index q, Index k) {
                return s + static_cast<double>(table.ptr<float>()[at(h, q, k)]);
              }},
              [&](double, Index h, Index q, Index k, double ds, double* g) { g[at(h, q, k)] += ds; });
  }
}

TEST_CASE("t5_bias: buckets are those of T5, values and gradients equal plain loops") {
  // Results of T5Attention._relative_position_bucket in transformers for the distances d.
  const Index d[] = {-130, -128, -100, -64, -20, -9, -8, -1, 0, 1, 8, 100};
  const Index both[] = {15, 15, 15, 14, 10, 8, 8, 1, 0, 17, 24, 31}, back[] = {31, 31, 30, 26, 17, 9, 8, 1, 0, 0, 0, 0};
  for (std::size_t i = 0; i < std::size(d); ++i) {
    CAPTURE(d[i]);
    CHECK(t5_bucket(d[i], 32) == both[i]);
    CHECK(t5_bucket(d[i], 32, {.bidirectional = false}) == back[i]);
  }
  for (const bool bidirectional : {false, true}) {
    const T5BiasOptions o{.bidirectional = bidirectional, .max_distance = 60};
    const Tensor table = normal({4, 16}, 3, DType::float32);
    const auto at = [&](Index h, Index q, Index k) { return h * 16 + t5_bucket(k - q, 16, o); };
    check_mod(t5_bias(table, o), {[&](double s, Index, Index h, Index q, Index k) {
                return s + static_cast<double>(table.ptr<float>()[at(h, q, k)]);
              }},
              [&](double, Index h, Index q, Index k, double ds, double* g) { g[at(h, q, k)] += ds; });
  }
}

TEST_CASE("built-in score functions pass gradcheck, with the same gradient bits at any number of threads") {
  const AttentionData x = random_attention({2, 4, 2, 6, 9, 3, 4});
  const auto check = [&](const auto& make, const Tensor& parameter) {
    gradcheck(
        [&](const std::vector<Tensor>& in) {
          return flex_attention(in[0], in[1], in[2], {.score_mod = make(in[3])}, {.causal = true});
        },
        {x.q, x.k, x.v, parameter.to(DType::float64)});
    const AttentionData y = random_attention({3, 4, 2, 300, 300, 8, 8});
    const ModRun expected = run_mod(y, make(parameter), {.causal = true}, DType::float32);
    for (const int n : {1, 2, 3}) {
      set_threads(n);
      CHECK(same_bits(run_mod(y, make(parameter), {.causal = true}, DType::float32).dparameter, expected.dparameter));
    }
    set_threads(0);
  };
  check([](const Tensor& p) { return alibi(p); }, alibi_slopes(4));
  check([](const Tensor& p) { return soft_cap(p); }, Tensor::from({2, 3, 4, 5}));
  check([](const Tensor& p) { return relative_bias(p); }, normal({4, 7}, 3));
  check([](const Tensor& p) { return t5_bias(p, {.max_distance = 9}); }, normal({4, 8}, 3));
}

TEST_CASE("built-in masks allow the pairs that their names promise") {
  const auto window = sliding_window(3), with_sinks = sliding_window(3, 2);
  const auto prefix = prefix_causal(4);
  for (int q = 0; q < 12; ++q)
    for (int k = 0; k < 12; ++k) {
      CHECK(window(0, 0, q, k) == (std::abs(q - k) < 3));
      CHECK(with_sinks(0, 0, q, k) == (std::abs(q - k) < 3 || k < 2));
      CHECK(prefix(0, 0, q, k) == (k < 4 || k <= q));
      CHECK(and_masks(window, prefix)(0, 0, q, k) == (window(0, 0, q, k) && prefix(0, 0, q, k)));
      CHECK(or_masks(window, prefix)(0, 0, q, k) == (window(0, 0, q, k) || prefix(0, 0, q, k)));
    }
}

TEST_CASE("built-in score functions refuse arguments that do not fit") {
  const Tensor q = normal({1, 4, 5, 8});
  check_errors({
      {"alibi: heads is 0", [] { alibi(0); }},
      {"alibi: slopes is [2, 3] float64",
       [] {
         alibi(normal({2, 3}));
       }},
      {"soft_cap: c is 0", [] { soft_cap(0.0); }},
      {"soft_cap: c is [2, 2] float64",
       [] {
         soft_cap(normal({2, 2}));
       }},
      {"relative_bias: table is [4, 6] float64",
       [] {
         relative_bias(normal({4, 6}));
       }},
      {"relative_bias: table is undefined", [] { relative_bias(Tensor()); }},
      {"t5_bias: table is [4, 6] float64",
       [] {
         t5_bias(normal({4, 6}));
       }},
      {"t5_bias: max_distance is 8",
       [] {
         t5_bias(normal({4, 32}), {.max_distance = 8});
       }},
      {"the score_mod's parameter is [3, 7] float64",
       [&] {
         flex_attention(q, q, q, {.score_mod = relative_bias(normal({3, 7}))});
       }},
  });
}

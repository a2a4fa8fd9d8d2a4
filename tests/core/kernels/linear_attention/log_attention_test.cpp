// Linear attention whose features are given by their logarithms: the exponential feature map and Efficient attention.
#include <heed/autograd/norms.hpp>
#include <heed/autograd/tape.hpp>
#include <heed/core/parallel.hpp>

#include "tests/autograd/linear_reference.hpp"
#include "tests/core/levels.hpp"
#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;

namespace {

const LinearFeatures kExp{.feature_map = FeatureMap::exp};

// o_i = sum_r softmax(q_i)_r sum_j exp(k_jr + bias_j) v_j / sum_j exp(k_jr + bias_j), over the keys visible to query i.
Tensor naive_efficient(const AttentionData& x, const AttentionCall& o) {
  const Index B = x.q.dim(0), H = x.q.dim(1), T = x.q.dim(2), D = x.q.dim(3), Hk = x.k.dim(1), S = x.k.dim(2),
              V = x.v.dim(3);
  Tensor y = Tensor::zeros({B, H, T, V}, DType::float64);
  const Tensor bias = o.bias.defined() ? o.bias.expand({B, H, 1, S}) : Tensor();
  const std::vector<double> q = x.q.to_vector<double>(), k = x.k.to_vector<double>(), v = x.v.to_vector<double>();
  for (Index b = 0; b < B; ++b)
    for (Index h = 0; h < H; ++h)
      for (Index i = 0; i < T; ++i) {
        const Index g = h / (H / Hk);
        const double* q_row = q.data() + ((b * H + h) * T + i) * D;
        double all = 0;
        for (Index r = 0; r < D; ++r) all += std::exp(q_row[r]);
        for (Index r = 0; r < D; ++r) {
          std::vector<double> sum(static_cast<std::size_t>(V), 0.0);
          double z = 0;
          for (Index j = 0; j < S; ++j) {
            if (o.causal && j > i + S - T) continue;
            if (o.key_lengths.defined() && j >= static_cast<Index>(o.key_lengths.at({b}))) continue;
            if (o.key_mask.defined() && o.key_mask.at({b, j}) == 0) continue;
            const Index key = (b * Hk + g) * S + j;
            const double e = std::exp(k.data()[key * D + r] + (bias.defined() ? bias.at({b, h, 0, j}) : 0));
            z += e;
            for (Index c = 0; c < V; ++c) sum[static_cast<std::size_t>(c)] += e * v.data()[key * V + c];
          }
          if (z == 0) continue;
          for (Index c = 0; c < V; ++c)
            y.ptr<double>()[((b * H + h) * T + i) * V + c] +=
                std::exp(q_row[r]) / all * sum[static_cast<std::size_t>(c)] / z;
        }
      }
  return y;
}

// Causal with exp features: the weight of key j is sum_r exp(q_ir + k_jr), with the largest exponent subtracted.
Tensor naive_in_logarithms(const AttentionData& x) {
  const Index B = x.q.dim(0), H = x.q.dim(1), T = x.q.dim(2), D = x.q.dim(3), Hk = x.k.dim(1), V = x.v.dim(3);
  Tensor y = Tensor::zeros({B, H, T, V}, DType::float64);
  const std::vector<double> q = x.q.to_vector<double>(), k = x.k.to_vector<double>(), v = x.v.to_vector<double>();
  for (Index b = 0; b < B; ++b)
    for (Index h = 0; h < H; ++h)
      for (Index i = 0; i < T; ++i) {
        const Index g = h / (H / Hk), keys = (b * Hk + g) * T;
        const auto log_weight = [&](Index j, Index r) {
          return q.data()[((b * H + h) * T + i) * D + r] + k.data()[(keys + j) * D + r];
        };
        double max_weight = -1e300, sum = 0;
        for (Index j = 0; j <= i; ++j)
          for (Index r = 0; r < D; ++r) max_weight = std::max(max_weight, log_weight(j, r));
        for (Index j = 0; j <= i; ++j)
          for (Index r = 0; r < D; ++r) {
            const double w = std::exp(log_weight(j, r) - max_weight);
            sum += w;
            for (Index c = 0; c < V; ++c)
              y.ptr<double>()[((b * H + h) * T + i) * V + c] += w * v.data()[(keys + j) * V + c];
          }
        for (Index c = 0; c < V; ++c) y.ptr<double>()[((b * H + h) * T + i) * V + c] /= sum;
      }
  return y;
}

void check_efficient(const AttentionSize& s, const AttentionCall& o) {
  const AttentionData x = random_attention(s);
  CAPTURE(s.queries);
  CAPTURE(s.keys);
  CAPTURE(s.width);
  CAPTURE(o.causal);
  const Tensor expected = naive_efficient(x, o);
  AttentionCall floats = o;
  if (o.bias.defined()) floats.bias = o.bias.to(DType::float32);
  const auto single = [](const Tensor& t) { return t.to(DType::float32); };
  on_each_float_level([&] {
    CHECK(close(efficient_attention(x.q, x.k, x.v, o), expected, 0, 1e-13));
    CHECK(close(efficient_attention(single(x.q), single(x.k), single(x.v), floats), expected, 0, 2e-6));
  });
}

// Keys whose largest logarithm jumps by `jump` at every `every`-th position.
AttentionData jumping(const AttentionSize& s, double jump, Index every) {
  AttentionData x = random_attention(s);
  x.k = x.k.clone();
  for (Index j = 0; j < s.keys; ++j) {
    Tensor row = x.k.slice(2, j, j + 1);
    detail::copy_values(row, row + jump * static_cast<double>(j / every));
  }
  x.k = x.k.to(DType::float32).to(DType::float64);  // both dtypes then have the same numbers
  return x;
}

}  // namespace

TEST_CASE("log attention: Efficient attention equals its definition, causal and not, on each level") {
  for (Index n : {1, 2, 17, 63, 64, 65, 130}) {
    check_efficient({1, 2, 1, n, n, 8, 9}, {.causal = true});
    check_efficient({2, 1, 1, n, 40, 5, 7}, {});
    check_efficient({1, 1, 1, n, 40, 17, 16}, {.causal = true});
    check_efficient({1, 1, 1, 40, n, 3, 33}, {.causal = true});
  }
  const AttentionSize s{2, 4, 2, 70, 90, 8, 12};
  check_efficient(s, {.causal = true,
                      .key_lengths = Tensor::from<std::int32_t>({87, 5}),
                      .key_mask = random_mask({2, 90}, 0.6, 3),
                      .bias = Rng(5).normal({2, 1, 1, 90}, 0, 1, DType::float64)});
  check_efficient({1, 1, 1, 100, 100, 130, 20}, {.causal = true});
}

TEST_CASE("log attention: Efficient attention passes gradcheck in float64") {
  const AttentionData x = random_attention({2, 4, 2, 5, 7, 3, 4});
  const Tensor bias = Rng(4).normal({2, 1, 1, 7}, 0, 1, DType::float64);
  for (const bool causal : {false, true}) {
    AttentionCall o{.causal = causal, .key_lengths = Tensor::from<std::int32_t>({7, 4})};
    gradcheck(
        [&](const std::vector<Tensor>& in) {
          AttentionCall with = o;
          with.bias = in[3];
          return efficient_attention(in[0], in[1], in[2], with);
        },
        {x.q, x.k, x.v, bias}, {.min_samples = thinned<Index>(200, 20)});
  }
  // Several chunks and steps.
  const AttentionData longer = random_attention({1, 1, 1, 70, 75, 66, 2});
  gradcheck([&](const std::vector<Tensor>& in) { return efficient_attention(in[0], in[1], in[2], {.causal = true}); },
            {longer.q, longer.k, longer.v}, {.min_samples = thinned<Index>(200, 10)});
}

TEST_CASE("log attention: maxima that jump, up and down, lose nothing") {
  const AttentionSize s{1, 2, 1, 200, 200, 6, 5};
  for (const double jump : {3.0, 61.0, 120.0, -61.0}) {
    CAPTURE(jump);
    const AttentionData x = jumping(s, jump, 20);
    const LinearCase o{{.causal = true}, kExp};
    const Tensor expected = naive_in_logarithms(x);
    on_each_float_level([&] {
      const AttentionResult floats = run_linear(x, o, DType::float32), doubles = run_linear(x, o);
      CHECK(attention_error(floats, doubles) < 2e-5);
      CHECK(close(doubles.out, expected, 0, 1e-10));
    });
  }
}

TEST_CASE("log attention: masked keys may be NaN, later keys change nothing, rows without keys are zeros") {
  on_each_float_level([] {
    const AttentionData x = random_attention({2, 2, 1, 150, 150, 7, 9});
    for (const bool efficient : {false, true})
      for (const DType dtype : {DType::float32, DType::float64}) {
        CAPTURE(efficient);
        const auto run = [&](const AttentionData& in, const AttentionCall& o) {
          Tape tape;
          const Tensor q = tape.watch(in.q.to(dtype)), k = tape.watch(in.k.to(dtype)), v = tape.watch(in.v.to(dtype));
          const Tensor y = efficient ? efficient_attention(q, k, v, o) : linear_attention(q, k, v, o, kExp);
          tape.backward(y, in.dout.to(dtype));
          return AttentionResult{y.detach(), tape.grad(q), tape.grad(k), tape.grad(v), {}, {}};
        };
        AttentionCall o{.causal = true, .key_lengths = Tensor::from<std::int32_t>({150, 80})};
        const AttentionResult clean = run(x, o);
        AttentionData dirty = x;
        dirty.k = x.k.clone(), dirty.v = x.v.clone();
        dirty.k[1].slice(1, 80, 150).fill_(kNaN);
        dirty.v[1].slice(1, 80, 150).fill_(kNaN);
        const AttentionResult masked = run(dirty, o);
        CHECK(same_bits(masked.out, clean.out));
        CHECK(same_bits(masked.dq, clean.dq));
        CHECK(same_bits(masked.dk, clean.dk));
        CHECK(same_bits(masked.dv, clean.dv));
        const AttentionCall causal{.causal = true};
        AttentionData later = x;
        later.k = x.k.clone(), later.v = x.v.clone();
        later.k.slice(2, 100, 150).fill_(30);
        later.v.slice(2, 100, 150).fill_(kNaN);
        CHECK(close(run(later, causal).out.slice(2, 0, 100), run(x, causal).out.slice(2, 0, 100), 0,
                    dtype == DType::float32 ? 1e-5 : 1e-13));
        o.key_lengths = Tensor::from<std::int32_t>({0, 3});
        const AttentionResult none = run(x, o);
        for (const Tensor& t : {none.out, none.dq, none.dk, none.dv})
          for (const double value : t[0].to_vector<double>()) CHECK_UNARY(value == 0);
      }
  });
}

TEST_CASE("log attention: one call equals chunks and single tokens") {
  on_each_float_level([] {
    const AttentionData x = jumping({2, 4, 2, 150, 150, 9, 11}, 30, 40);
    int number = 0;
    for (const bool efficient : {false, true})
      for (const DType dtype : {DType::float32, DType::float64}) {
        const Tensor q = x.q.to(dtype), k = x.k.to(dtype), v = x.v.to(dtype);
        const AttentionCall o{.causal = true};
        const Tensor whole = efficient ? efficient_attention(q, k, v, o) : linear_attention(q, k, v, o, kExp);
        for (const Index step : {1, 7, 64, 149}) {
          if (!is_taken(number++, 3)) continue;
          CAPTURE(step);
          CAPTURE(efficient);
          LinearAttentionSums state;
          std::vector<Tensor> parts;
          for (Index i = 0; i < 150; i += step) {
            const Index end = std::min<Index>(150, i + step);
            const Tensor a = q.slice(2, i, end), b = k.slice(2, i, end), c = v.slice(2, i, end);
            parts.push_back(efficient ? efficient_attention_step(a, b, c, state, o)
                                      : linear_attention_step(a, b, c, state, o, kExp));
          }
          CHECK(close(concatenate(parts, 2), whole, 0, dtype == DType::float32 ? 1e-5 : 1e-12));
        }
      }
  });
}

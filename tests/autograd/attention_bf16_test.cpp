// Attention with bfloat16 q, k and v: within rounding of plain loops in float64, and no less exact than PyTorch's.
#include <heed/autograd/attention.hpp>
#include <heed/autograd/flex_attention.hpp>
#include <heed/autograd/tape.hpp>
#include <heed/core/parallel.hpp>

#include "tests/autograd/attention_bf16.hpp"
#include "tests/core/levels.hpp"

using namespace heed;
using namespace heed::test;

namespace {

void check_bf16(const AttentionSize& s, const AttentionCall& call, double spread = 1) {
  const AttentionData x = rounded(random_attention(s, 7, spread));
  const Rng before = default_rng();
  const AttentionResult expected = naive_attention(x, call, call.dropout > 0 ? &before : nullptr);
  const AttentionResult bounds =
      bounds_of(x, expected, 1 / std::sqrt(static_cast<double>(s.width)), 1 / (1 - call.dropout));
  CAPTURE(s.queries);
  CAPTURE(s.keys);
  CAPTURE(s.width);
  CAPTURE(s.value_width);
  on_each_level([&] {
    default_rng() = before;
    const AttentionResult got = run_attention(x, call, DType::bfloat16);
    CHECK((got.out.dtype() == DType::bfloat16 && got.dq.dtype() == DType::float32));
    CHECK(share(got.out, expected.out, bounds.out) < 1);
    CHECK(share(got.dq, expected.dq, bounds.dq) < 1);
    CHECK(share(got.dk, expected.dk, bounds.dk) < 1);
    CHECK(share(got.dv, expected.dv, bounds.dv) < 1);
    if (call.bias.defined() && call.bias.numel() == expected.dbias.numel())
      CHECK(share(got.dbias, expected.dbias, bounds.dbias) < 1);
  });
}

// The numbers that tests/reference/attention_bf16_torch.py computes from the same seeds.
Tensor spread_numbers(const Shape& shape, std::int64_t seed) {
  Tensor x = Tensor::empty(shape, DType::float64);
  for (Index i = 0; i < x.numel(); ++i) {
    auto word = static_cast<std::uint32_t>(static_cast<std::uint64_t>(i * 2654435761 + seed * 40503));
    word = (word ^ (word >> 15)) * 2246822519u;
    word = (word ^ (word >> 13)) * 3266489917u;
    x.ptr<double>()[i] = static_cast<double>(word ^ (word >> 16)) * 0x1p-30 - 2;
  }
  return x;
}

double relative_error(const Tensor& x, const Tensor& expected) {
  const std::vector<double> a = x.to(DType::float64).to_vector<double>(), b = expected.to_vector<double>();
  double error = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) error += (a[i] - b[i]) * (a[i] - b[i]), size += b[i] * b[i];
  return std::sqrt(error / size);
}

}  // namespace

TEST_CASE("attention of bfloat16 is within its roundings of the naive loops, on each level") {
  at_block_and_vector_sizes([](const AttentionSize& s, bool causal) { check_bf16(s, {.causal = causal}); });
  check_bf16({1, 1, 1, 65, 130, 16, 16}, {.causal = true}, 30);
}

TEST_CASE("attention of bfloat16 takes every mask, a bias and dropout, on each level") {
  int number = 0;
  for (const AttentionSize& s : {AttentionSize{2, 4, 2, 35, 67, 8, 12}, AttentionSize{2, 2, 2, 70, 21, 3, 3}}) {
    const Shape grid = {s.batch, s.heads, s.queries, s.keys};
    for (int bits = 1; bits < 64; ++bits) {
      if (!is_taken(number++, 2)) continue;
      AttentionCall o = call_of_bits(bits, s);
      if (bits & 8) o.mask = random_mask(grid, 0.5, 4);
      if (bits & 16) o.bias = Rng(5).normal(grid);
      if (bits & 32) o.dropout = 0.3;
      CAPTURE(bits);
      manual_seed(11);
      check_bf16(s, o);
    }
  }
}

TEST_CASE("attention of one bfloat16 query against a cache, on each level") {
  for (Index n : {1, 3, 63, 65, 511, 513, 1200})
    for (Index d : {1, 8, 17, 64}) {
      const AttentionData x = rounded(random_attention({2, 4, 2, 1, n, d, n % 2 ? d : 24}));
      AttentionCall o{.causal = true};
      if (d == 64) o.key_lengths = Tensor::from<std::int32_t>({static_cast<double>(n), static_cast<double>(n / 3)});
      if (d == 8) o.bias = Rng(5).normal({2, 1, 1, n});
      const auto half = [](const Tensor& t) { return t.to(DType::bfloat16); };
      CAPTURE(n);
      CAPTURE(d);
      const Tensor expected = naive_attention(x, o).out;
      on_each_level([&] {  // only the result is rounded
        const Tensor got = attention(half(x.q), half(x.k), half(x.v), o).to(DType::float64);
        CHECK(worst(got, expected, 0x1p-8, 1e-5) < 1);
      });
    }
}

TEST_CASE("attention of bfloat16 is no further from float64 than PyTorch's, forward and backward") {
  const Shape shape = {1, 4, 300, 64};
  const AttentionData x = rounded({spread_numbers(shape, 0), spread_numbers(shape, 1), spread_numbers(shape, 2),
                                   spread_numbers(shape, 3)});
  const AttentionResult expected = naive_attention(x, {.causal = true});
  on_each_level([&] {
    const AttentionResult got = run_attention(x, {.causal = true}, DType::bfloat16);
    CHECK(relative_error(got.out, expected.out) < 1.05 * 1.9212e-3);  // bounds printed by attention_bf16_torch.py
    CHECK(relative_error(got.dq, expected.dq) < 2.6057e-3);
    CHECK(relative_error(got.dk, expected.dk) < 3.8367e-3);
    CHECK(relative_error(got.dv, expected.dv) < 3.7279e-3);
  });
}

// If one weight is near 1, do . v - delta cancels, and a rounding error of delta alone would dominate the gradients.
TEST_CASE("attention of bfloat16 keeps its gradients where a weight is near 1, on each level") {
  for (const AttentionSize& s : {AttentionSize{4, 1, 1, 3, 6, 8, 8}, AttentionSize{1, 2, 2, 90, 90, 24, 20},
                                 AttentionSize{1, 1, 1, 40, 600, 32, 32}}) {
    AttentionData x = rounded(random_attention(s, 5, 12));
    x.dout = Rng(6).normal(x.dout.shape(), 0, 1, DType::float64);  // not representable in bfloat16, as in training
    const AttentionResult expected = naive_attention(x, {});
    CAPTURE(s.width);
    on_each_level([&] {
      const AttentionResult got = run_attention(x, {}, DType::bfloat16);
      CHECK(relative_error(got.dq, expected.dq) < 4e-3);
      CHECK(relative_error(got.dk, expected.dk) < 4e-3);
    });
  }
}

TEST_CASE("attention of bfloat16 reads the views of a fused projection in place") {
  const Index B = 2, T = 50, H = 3, D = 8;
  const Tensor fused = Rng(3).normal({B, T, 3, H, D}).to(DType::bfloat16);
  const auto third = [](const Tensor& x, Index n) { return x.select(2, n).transpose(1, 2); };
  const Tensor dy = Rng(5).normal({B, T, H * D}).to(DType::bfloat16).to(DType::float32);
  Tape tape;
  const Tensor all = tape.watch(fused);
  const Tensor y = attention(third(all, 0), third(all, 1), third(all, 2), {.causal = true})
                       .transpose(1, 2)
                       .reshape({B, T, H * D});
  CHECK(tape.steps() == 1);  // no copies
  CHECK(y.dtype() == DType::bfloat16);
  tape.backward(y, dy);
  const Tensor g = tape.grad(all);
  CHECK(g.dtype() == DType::float32);
  const auto wide = [&](Index n) { return third(fused, n).to(DType::float64).dense(); };
  const AttentionData x{wide(0), wide(1), wide(2),
                        dy.to(DType::float64).reshape({B, T, H, D}).transpose(1, 2).dense()};
  const AttentionResult expected = naive_attention(x, {.causal = true}),
                        bounds = bounds_of(x, expected, 1 / std::sqrt(8.0), 1);
  CHECK(share(third(g, 0), expected.dq, bounds.dq) < 1);
  CHECK(share(third(g, 1), expected.dk, bounds.dk) < 1);
  CHECK(share(third(g, 2), expected.dv, bounds.dv) < 1);
}

TEST_CASE("attention of bfloat16 gives the same bits at any number of threads") {
  for (const AttentionSize& s : {AttentionSize{1, 1, 1, 700, 900, 32, 32}, AttentionSize{3, 5, 5, 40, 300, 8, 8}}) {
    const AttentionData x = random_attention(s);
    AttentionResult first;
    for (int n : {1, 2, 3, 8}) {
      set_threads(n);
      manual_seed(3);
      const AttentionResult r = run_attention(x, {.causal = true, .dropout = 0.1}, DType::bfloat16);
      if (n == 1) first = r;
      CHECK((same_bits(r.out, first.out) && same_bits(r.dq, first.dq) && same_bits(r.dk, first.dk) &&
             same_bits(r.dv, first.dv)));
    }
  }
  set_threads(0);
}

TEST_CASE("attention of bfloat16: hidden keys have no effect, even NaN, and visible ones have") {
  on_each_level([] {
    AttentionData x = random_attention({2, 4, 2, 40, 90, 16, 8});
    const AttentionCall o{.causal = true,
                          .key_lengths = Tensor::from<std::int32_t>({60, 90}),
                          .key_mask = random_mask({2, 90}, 0.7, 3)};
    const AttentionResult expected = run_attention(x, o, DType::bfloat16);
    for (Index b = 0; b < 2; ++b)
      for (Index h = 0; h < 2; ++h)
        for (Index j = 0; j < 90; ++j) {
          if (j < static_cast<Index>(o.key_lengths.at({b})) && o.key_mask.at({b, j}) != 0) continue;
          Tensor kj = x.k[b][h][j], vj = x.v[b][h][j];
          kj.fill_(kNaN);
          vj.fill_(j % 2 ? kNaN : kInf);
        }
    const AttentionResult got = run_attention(x, o, DType::bfloat16);
    CHECK((same_bits(got.out, expected.out) && same_bits(got.dq, expected.dq) && same_bits(got.dk, expected.dk) &&
           same_bits(got.dv, expected.dv)));
    // Keys hidden by causality: results stay finite and differ only by the order of sums.
    AttentionData y = rounded(random_attention({1, 1, 1, 81, 81, 8, 8}));
    const AttentionResult clean = run_attention(y, {.causal = true}, DType::bfloat16);
    for (Tensor t : {y.k, y.v, y.q, y.dout}) {
      Tensor row = t[0][0][70];
      row.fill_(kNaN);
    }
    const AttentionResult seen = run_attention(y, {.causal = true}, DType::bfloat16);
    const auto front = [](const Tensor& t) { return t.slice(2, 0, 70).to(DType::float32); };
    CHECK(close(front(seen.out), front(clean.out), 0x1p-7, 1e-5));
    CHECK(close(front(seen.dq), front(clean.dq), 1e-5, 1e-5));
    CHECK(std::isnan(seen.out.to(DType::float32).at({0, 0, 70, 0})));
    CHECK(std::isnan(seen.out.to(DType::float32).at({0, 0, 75, 0})));
    CHECK(std::isnan(seen.dk.at({0, 0, 3, 0})));
  });
}

TEST_CASE("flex_attention of bfloat16: functions of scores, masks of blocks and sinks, on each level") {
  const auto bent = [](auto s, int, int, int q, int k) { return 2 * tanh(s / 2) - 0.01 * abs(q - k); };
  const auto near = [](int, int, int q, int k) { return q - k < 50 && k <= q; };
  NaiveRules rules;
  rules.f = [](double s, Index, Index, Index q, Index k) {
    return 2 * std::tanh(s / 2) - 0.01 * static_cast<double>(std::abs(q - k));
  };
  rules.derivative = [](double s, Index, Index, Index, Index) { return 1 - std::pow(std::tanh(s / 2), 2); };
  rules.mask = [](Index, Index, Index q, Index k) { return q - k < 50 && k <= q; };
  rules.sinks = {0.5, -1};
  const AttentionData x = rounded(random_attention({1, 2, 1, 150, 150, 16, 16}));
  const AttentionResult expected = naive_attention(x, {}, nullptr, {}, rules);
  on_each_level([&] {
    Tape tape;
    const auto watched = [&](const Tensor& t) { return tape.watch(t.to(DType::bfloat16)); };
    const Tensor q = watched(x.q), k = watched(x.k), v = watched(x.v),
                 sinks = tape.watch(Tensor::from<float>({0.5, -1}));
    const Tensor y = flex_attention(
        q, k, v, {.score_mod = bent, .block_mask = create_block_mask(near, 1, 1, 150, 150), .sinks = sinks});
    tape.backward(y, x.dout.to(DType::float32));
    CHECK(relative_error(y.detach(), expected.out) < 0x1p-8);
    CHECK(relative_error(tape.grad(q), expected.dq) < 0x1p-8);
    CHECK(relative_error(tape.grad(k), expected.dk) < 0x1p-8);
    CHECK(relative_error(tape.grad(v), expected.dv) < 0x1p-8);
    CHECK(relative_error(tape.grad(sinks), expected.dsinks) < 0x1p-6);
  });
}

TEST_CASE("attention refuses dtypes that cannot be combined") {
  const auto half = [](const Shape& s) { return Tensor::zeros(s, DType::bfloat16); };
  const Tensor q = half({2, 4, 5, 8}), k = half({2, 2, 7, 8}), v = half({2, 2, 7, 6});
  const auto refuses = [](auto&& run, const std::string& part) { CHECK(contains(error_of(run), part)); };
  refuses([&] { attention(q, k, v.to(DType::float32)); }, "all must be float32, all bfloat16, or all float64");
  refuses([&] { attention(q, k, v, {.bias = half({5, 7})}); }, "it must be float32, as scores are");
  refuses([&] { sparse_attention(q, k, v, {}); }, "all must be float32, or all float64");
}

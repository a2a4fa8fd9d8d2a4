// Attention where something is hidden, missing or wrong.
#include <heed/autograd/attention.hpp>
#include <limits>

#include "tests/autograd/attention_reference.hpp"
#include "tests/core/levels.hpp"

using namespace heed;
using namespace heed::test;

TEST_CASE("attention: padding may hold NaN without any effect") {
  on_each_level([] {
    for (const DType dtype : {DType::float64, DType::float32}) {
      AttentionData x = random_attention({2, 4, 2, 40, 90, 16, 8});
      AttentionCall o{.causal = true,
                         .key_lengths = Tensor::from<std::int32_t>({60, 90}),
                         .key_mask = random_mask({2, 90}, 0.7, 3)};
      const AttentionResult wanted = run_attention(x, o, dtype);
      for (Index b = 0; b < 2; ++b)
        for (Index h = 0; h < 2; ++h)
          for (Index j = 0; j < 90; ++j) {
            if (j < static_cast<Index>(o.key_lengths.at({b})) && o.key_mask.at({b, j}) != 0) continue;
            Tensor kj = x.k[b][h][j], vj = x.v[b][h][j];
            kj.fill_(kNaN);
            vj.fill_(j % 2 ? kNaN : std::numeric_limits<double>::infinity());
          }
      const AttentionResult got = run_attention(x, o, dtype);
      CHECK(same_bits(got.out, wanted.out));
      CHECK(same_bits(got.dq, wanted.dq));
      CHECK(same_bits(got.dk, wanted.dk));  // 0 for masked keys, as for finite padding
      CHECK(same_bits(got.dv, wanted.dv));
      for (Index j = 60; j < 90; ++j) CHECK((got.dk.at({0, 0, j, 3}) == 0 && got.dv.at({0, 1, j, 3}) == 0));
    }
  });
}

TEST_CASE("attention: what a pair mask or the future hides has no effect, even NaN") {
  on_each_level([] {
    for (const bool causal : {false, true}) {
      AttentionData x = random_attention({1, 1, 1, 80, 80, 8, 8});
      AttentionCall o{.causal = causal};
      if (!causal) {
        o.mask = Tensor::zeros({80, 80}, DType::bool8);
        for (Index i = 0; i < 80; ++i)
          for (Index j = 0; j <= i; ++j) o.mask.ptr<bool>()[i * 80 + j] = true;
      }
      const AttentionResult clean = run_attention(x, o);
      for (Tensor t : {x.k, x.v, x.q, x.dout}) {
        Tensor row = t[0][0][70];
        row.fill_(kNaN);
      }
      const AttentionResult got = run_attention(x, o);
      CHECK(close(got.out.slice(2, 0, 70), clean.out.slice(2, 0, 70), 1e-13, 1e-13));
      CHECK(close(got.dq.slice(2, 0, 70), clean.dq.slice(2, 0, 70), 1e-13, 1e-13));
      CHECK(std::isnan(got.out.at({0, 0, 70, 0})));
      CHECK(std::isnan(got.dk.at({0, 0, 3, 0})));
      CHECK(!std::isnan(got.dv.at({0, 0, 75, 0})) == false);  // row 75 sees key 70
    }
    // Also where a tile has fewer queries than lanes.
    AttentionData few = random_attention({1, 1, 1, 3, 6, 8, 8});
    const AttentionCall even{.mask = Tensor::from({1, 0, 1, 0, 1, 0}).to(DType::bool8)};
    const AttentionResult without = run_attention(few, even);
    for (const Tensor& t : {few.k, few.v})
      for (Index j = 1; j < 6; j += 2) {
        Tensor row = t[0][0][j];
        row.fill_(kNaN);
      }
    CHECK(attention_error(run_attention(few, even), without) < 1e-13);
    // A query, or its output's gradient, spoils the keys that it sees and no others.
    for (const bool query : {false, true}) {
      AttentionData x = random_attention({1, 1, 1, 80, 80, 8, 8});
      const AttentionResult clean = run_attention(x, {.causal = true});
      Tensor row = (query ? x.q : x.dout)[0][0][70];
      row.fill_(kNaN);
      const AttentionResult got = run_attention(x, {.causal = true});
      CHECK(close(got.dk.slice(2, 71, 80), clean.dk.slice(2, 71, 80), 1e-13, 1e-13));
      CHECK(close(got.dv.slice(2, 71, 80), clean.dv.slice(2, 71, 80), 1e-13, 1e-13));
      CHECK((std::isnan(got.dk.at({0, 0, 69, 0})) && std::isnan(got.dv.at({0, 0, 69, 0}))));
    }
    // A row without any key passes nothing on, whatever it or its gradient holds.
    AttentionData x = random_attention({1, 1, 1, 20, 12, 8, 8});
    const AttentionResult clean = run_attention(x, {.causal = true});
    for (Tensor t : {x.q, x.dout}) {
      Tensor rows = t.slice(2, 0, 8);
      rows.fill_(kNaN);
    }
    const AttentionResult got = run_attention(x, {.causal = true});
    CHECK((same_bits(got.out, clean.out) && same_bits(got.dq, clean.dq) && same_bits(got.dk, clean.dk) &&
           same_bits(got.dv, clean.dv)));
    for (Index i = 0; i < 8; ++i) CHECK((got.out.at({0, 0, i, 1}) == 0 && got.dq.at({0, 0, i, 1}) == 0));
  });
}

TEST_CASE("attention of nothing") {
  for (const AttentionSize& s : {AttentionSize{0, 2, 1, 3, 3, 4, 4}, AttentionSize{1, 2, 1, 0, 3, 4, 4},
                                 AttentionSize{1, 2, 1, 3, 0, 4, 4}, AttentionSize{1, 2, 1, 3, 3, 4, 0}}) {
    for (const bool causal : {false, true}) {
      const AttentionData x = random_attention(s);
      const AttentionResult r = run_attention(x, {.causal = causal});
      CHECK(r.out.shape() == Shape{s.batch, s.heads, s.queries, s.value_width});
      for (const Tensor& t : {r.out, r.dq, r.dk, r.dv})
        for (double e : t.to_vector<double>()) CHECK(e == 0);
    }
  }
}

TEST_CASE("attention refuses what does not fit") {
  const auto f = [](const Shape& s) { return Tensor::zeros(s); };
  const Tensor q = f({2, 4, 5, 8}), k = f({2, 2, 7, 8}), v = f({2, 2, 7, 6});
  const auto refuses = [](auto&& run, const std::string& part) { CHECK(contains(error_of(run), part)); };
  refuses(
      [&] {
        attention(f({4, 5, 8}), k, v);
      },
      "attention: q is [4, 5, 8] float32, k is [2, 2, 7, 8] float32 and v is [2, 2, 7, 6] float32; they must be "
      "[batch, heads, length, width]");
  refuses([&] { attention(q, k.to(DType::float64), v); }, "all must be float32, or all float64");
  refuses([&] { attention(q.to(DType::bfloat16), k.to(DType::bfloat16), v.to(DType::bfloat16)); },
          "all must be float32, or all float64");
  refuses([&] { attention(q, f({2, 2, 7, 9}), v); }, "batch and width must be the same");
  refuses([&] { attention(q, k, f({2, 2, 8, 6})); }, "all axes but the last must be the same");
  refuses([&] { attention(q, f({2, 3, 7, 8}), f({2, 3, 7, 6})); }, "the heads of k and v must divide the heads of q");
  refuses([&] { attention(f({2, 4, 5, 0}), f({2, 2, 7, 0}), v); }, "its last axis must not be empty");
  refuses(
      [&] {
        attention(q, k, v, {.key_lengths = Tensor::from<std::int32_t>({1, 2, 3})});
      },
      "key_lengths is [3] int32; it must be [2] int32");
  refuses(
      [&] {
        attention(q, k, v, {.key_mask = Tensor::zeros({2, 7})});
      },
      "key_mask is [2, 7] float32; it must be [2, 7] bool8");
  refuses([&] { attention(q, k, v, {.mask = Tensor::zeros({5, 7})}); }, "it must be bool8");
  refuses(
      [&] {
        attention(q, k, v, {.mask = Tensor::zeros({5, 6}, DType::bool8)});
      },
      "mask is [5, 6] bool8; it must broadcast to [batch, heads, queries, keys] [2, 4, 5, 7]");
  refuses([&] { attention(q, k, v, {.bias = Tensor::zeros({5, 7}, DType::float64)}); }, "the dtypes must be the same");
  refuses(
      [&] {
        attention(q, k, v, {.bias = Tensor::zeros({3, 1, 5, 7})});
      },
      "bias is [3, 1, 5, 7] float32; it must broadcast to");
  refuses([&] { attention(q, k, v, {.dropout = 1.5}); }, "dropout is 1.5; it must be in [0, 1]");
}

// Values and gradients of attention against plain loops; masked, missing and invalid inputs.
#include <heed/autograd/attention.hpp>
#include <heed/autograd/tape.hpp>
#include <heed/core/memory.hpp>
#include <heed/core/parallel.hpp>
#include <limits>

#include "tests/autograd/attention_reference.hpp"
#include "tests/core/levels.hpp"
#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;

namespace {

void check_softmax(const AttentionSize& s, const AttentionCall& o, double spread = 1,
                   double float_tolerance = 3e-6) {
  const AttentionData x = random_attention(s, 7, spread);
  const AttentionResult expected = naive_attention(x, o);
  CAPTURE(s.queries);
  CAPTURE(s.keys);
  CAPTURE(s.width);
  CAPTURE(s.value_width);
  on_each_level([&] {
    CHECK(attention_error(run_attention(x, o), expected) < 1e-12 * std::max(1.0, spread));
    if (!o.bias.defined()) CHECK(attention_error(run_attention(x, o, DType::float32), expected) < float_tolerance);
  });
}

}  // namespace

TEST_CASE("attention equals the naive loops at lengths and widths around blocks and vectors, on each level") {
  at_block_and_vector_sizes([](const AttentionSize& s, bool causal) { check_softmax(s, {.causal = causal}); });
}

TEST_CASE("attention takes every mask, alone and with others, on each level") {
  const AttentionSize sizes[] = {{2, 4, 2, 35, 67, 8, 12}, {2, 4, 1, 33, 300, 16, 16}, {2, 2, 2, 70, 20, 3, 3}};
  int number = 0;
  for (const AttentionSize& s : sizes) {
    const Shape grid = {s.batch, s.heads, s.queries, s.keys};
    for (int bits = 1; bits < 32; ++bits) {
      if (!is_taken(number++, 3)) continue;
      AttentionCall o = call_of_bits(bits, s);
      if (bits & 8) o.mask = random_mask(bits & 16 ? grid : Shape{s.heads, 1, s.keys}, 0.5, 4);
      if (bits & 16)
        o.bias = Rng(5).normal(bits & 4 ? grid : Shape{s.heads, s.queries, s.keys}, 0, 1, DType::float64);
      const std::optional<double> scale = bits == 9 + 16 ? std::optional(0.37) : std::nullopt;
      CAPTURE(bits);
      const AttentionData x = random_attention(s);
      const AttentionResult expected = naive_attention(x, o, nullptr, scale);
      on_each_level([&] {
        const AttentionResult doubles = run_attention(x, o, DType::float64, scale),
                              floats = run_attention(x, o, DType::float32, scale);
        CHECK(attention_error(doubles, expected) < 1e-12);
        CHECK(attention_error(floats, expected) < 3e-6);
        if (o.bias.defined()) CHECK(worst(doubles.dbias, detail::sum_to(expected.dbias, o.bias.shape()), 0, 1e-12) < 1);
        const Tensor weights = weights_by([&](In v) { return attention(x.q, x.k, v, o, scale); }, x.k);
        CHECK(close(weights, expected.weights, 1e-12, 1e-12));
      });
    }
  }
}

TEST_CASE("attention of one query against a cache, cut into chunks, on each level") {
  for (Index n : {1, 3, 4, 5, 63, 64, 65, 511, 512, 513, 1200}) {
    for (Index d : {1, 3, 8, 16, 17, 64, 130}) {
      const AttentionSize s{2, 4, 2, 1, n, d, n % 2 ? d : 24};
      AttentionData x = random_attention(s);
      AttentionCall o{.causal = n % 2 == 0};
      if (d == 3 || d == 64)
        o.key_lengths = Tensor::from<std::int32_t>({static_cast<double>(n), static_cast<double>(n / 3)});
      if (d == 8 || d == 64) o.key_mask = random_mask({2, n}, 0.5, 3);
      if (d == 16 || d == 64) o.mask = random_mask({4, 1, n}, 0.5, 4);
      if (d == 17 || d == 64) o.bias = Rng(5).normal({2, 1, 1, n}, 0, 1, DType::float64);
      const Tensor expected = naive_attention(x, o).out;
      if (d == 8)  // masked keys may be NaN
        for (Index j = 0; j < n; ++j)
          for (Index h = 0; h < 2; ++h) {
            if (o.key_mask.at({1, j}) != 0) continue;
            Tensor k = x.k[1][h][j], v = x.v[1][h][j];
            k.fill_(kNaN);
            v.fill_(kNaN);
          }
      CAPTURE(n);
      CAPTURE(d);
      AttentionCall f = o;
      if (f.bias.defined()) f.bias = f.bias.to(DType::float32);
      const auto single = [](const Tensor& t) { return t.to(DType::float32); };
      on_each_level([&] {
        CHECK(worst(attention(x.q, x.k, x.v, o), expected, 0, 1e-12) < 1);
        CHECK(worst(attention(single(x.q), single(x.k), single(x.v), f), expected, 0, 2e-6) < 1);
      });
    }
  }
}

TEST_CASE("attention passes gradcheck in float64") {
  const AttentionSize s{2, 4, 2, 5, 7, 3, 4};
  const Tensor lengths = Tensor::from<std::int32_t>({7, 2});
  const Tensor mask = random_mask({2, 4, 5, 7}, 0.5, 9), key_mask = random_mask({2, 7}, 0.6, 10);
  const AttentionData x = random_attention(s);
  const Tensor bias = Rng(4).normal({4, 5, 7}, 0, 1, DType::float64);
  const AttentionCall cases[] = {{},
                                    {.causal = true},
                                    {.key_lengths = lengths},
                                    {.causal = true, .key_mask = key_mask},
                                    {.causal = true, .mask = mask},
                                    {.mask = mask, .dropout = 0.4},
                                    {.causal = true, .dropout = 0.25}};
  for (const AttentionCall& o : cases) {
    gradcheck([&](const std::vector<Tensor>& in) { return attention(in[0], in[1], in[2], o); }, {x.q, x.k, x.v});
    gradcheck([&](const std::vector<Tensor>& in) { return attention(in[0], in[1], in[2], o, 0.3); }, {x.q, x.k, x.v});
    gradcheck(
        [&](const std::vector<Tensor>& in) {
          AttentionCall with = o;
          with.bias = in[3];
          return attention(in[0], in[1], in[2], with);
        },
        {x.q, x.k, x.v, bias});
  }
  // More queries than keys under a causal mask, where the first rows have no keys, and lengths of 0.
  const AttentionData y = random_attention({2, 2, 1, 9, 4, 3, 2});
  const AttentionCall empty[] = {{.causal = true}, {.key_lengths = Tensor::from<std::int32_t>({0, 3})}};
  for (const AttentionCall& o : empty)
    gradcheck([&](const std::vector<Tensor>& in) { return attention(in[0], in[1], in[2], o); }, {y.q, y.k, y.v});
}

TEST_CASE("attention drops the weights that Philox names, and only in training") {
  const AttentionData x = random_attention({2, 2, 1, 37, 70, 8, 8});
  on_each_level([&] {
    for (const bool causal : {false, true}) {
      const AttentionCall o{.causal = causal, .dropout = 0.3};
      manual_seed(11);
      default_rng().advance(5);
      const Rng before = default_rng();
      const AttentionResult expected = naive_attention(x, o, &before);
      CHECK(attention_error(run_attention(x, o), expected) < 1e-12);
      CHECK(default_rng().position() == before.position() + 2 * 2 * 37 * 18);
      default_rng() = before;
      CHECK(attention_error(run_attention(x, o, DType::float32), expected) < 3e-6);
      const AttentionCall none{.causal = causal};
      const Evaluation evaluation;
      CHECK(same_bits(attention(x.q, x.k, x.v, o), attention(x.q, x.k, x.v, none)));
    }
  });
}

TEST_CASE("attention keeps its precision at spreads of hundreds in the logits") {
  // With this spread of q, the standard deviation of logits is 300. In float32, a logit of 1000 has a rounding error of
  // about 1e-4.
  check_softmax({1, 2, 1, 65, 130, 16, 16}, {.causal = true}, 300, 2e-3);
  check_softmax({1, 1, 1, 40, 300, 16, 16}, {}, 300, 2e-3);
  on_each_level([] {
    AttentionData x = random_attention({1, 1, 1, 3, 70, 4, 4});
    AttentionCall o;
    o.bias = Tensor::zeros({1, 1, 3, 70}, DType::float64);
    for (Index j = 0; j < 70; ++j)
      o.bias.ptr<double>()[70 + j] = j < 64 ? -1e30 : 0,
                                o.bias.ptr<double>()[140 + j] = 1e4 * static_cast<double>(j % 2);
    const AttentionResult expected = naive_attention(x, o);
    CHECK(attention_error(run_attention(x, o), expected) < 1e-11);
    CHECK(attention_error(run_attention(x, o, DType::float32), expected) < 2e-3);
  });
}

TEST_CASE("attention reads and writes the views of a fused projection in place") {
  const Index B = 2, T = 50, H = 3, D = 8;
  const Tensor fused = Rng(3).normal({B, T, 3, H, D}, 0, 1, DType::float64);
  const auto third = [](const Tensor& x, Index n) { return x.select(2, n).transpose(1, 2); };
  const AttentionData x{third(fused, 0).dense(), third(fused, 1).dense(), third(fused, 2).dense(),
                        Rng(5).normal({B, H, T, D}, 0, 1, DType::float64)};
  const AttentionResult expected = naive_attention(x, {.causal = true});
  Tape tape;
  const Tensor all = tape.watch(fused);
  const Tensor y = attention(third(all, 0), third(all, 1), third(all, 2), {.causal = true})
                       .transpose(1, 2)
                       .reshape({B, T, H * D});
  CHECK(close(y, expected.out.transpose(1, 2).reshape({B, T, H * D}), 1e-12, 1e-12));
  CHECK(tape.steps() == 1);  // no copies
  tape.backward(y, x.dout.transpose(1, 2).reshape({B, T, H * D}));
  const Tensor g = tape.grad(all);
  CHECK(close(third(g, 0), expected.dq, 1e-12, 1e-12));
  CHECK(close(third(g, 1), expected.dk, 1e-12, 1e-12));
  CHECK(close(third(g, 2), expected.dv, 1e-12, 1e-12));

  // If the stride of the last axis is not 1, the tensor is copied. Gradients of an expanded tensor are summed.
  const Tensor turned = x.q.transpose(2, 3).dense().transpose(2, 3);
  CHECK(same_bits(attention(turned, x.k, x.v), attention(x.q, x.k, x.v)));
  gradcheck(
      [&](const std::vector<Tensor>& in) {
        return attention(in[0].transpose(2, 3), in[0].transpose(2, 3), in[1].expand({2, 2, 4, 3}));
      },
      {Rng(2).normal({2, 2, 3, 4}, 0, 1, DType::float64), Rng(3).normal({1, 1, 4, 3}, 0, 1, DType::float64)});
  gradcheck([&](const std::vector<Tensor>& in) { return attention(in[0], in[0], in[0], {.causal = true}); },
            {Rng(2).normal({2, 2, 5, 4}, 0, 1, DType::float64)});
}

TEST_CASE("attention gives the same bits at any number of threads, and uses them with one head") {
  for (const DType dtype : {DType::float32, DType::float64}) {
    const AttentionSize sizes[] = {{1, 1, 1, 700, 900, 32, 32}, {2, 4, 2, 130, 130, 16, 16}, {3, 5, 5, 40, 300, 8, 8}};
    for (const AttentionSize& s : sizes) {
      const AttentionData x = random_attention(s);
      const AttentionCall o{.causal = true, .dropout = 0.1};
      AttentionResult first;
      for (int n : {1, 2, 3, 8}) {
        set_threads(n);
        manual_seed(3);
        threads_seen();
        const AttentionResult r = run_attention(x, o, dtype);
        if (n == 1) first = r;
        // A busy machine may wake the second thread late. It only has to take part in one of the tries.
        int seen = threads_seen();
        for (int tries = 0; n == 2 && seen < 2 && tries < 500; ++tries)
          seen = run_attention(x, {}, dtype).out.defined() ? threads_seen() : 0;
        if (n == 2 && s.heads == 1) CHECK(seen == 2);
        CHECK((same_bits(r.out, first.out) && same_bits(r.dq, first.dq) && same_bits(r.dk, first.dk) &&
               same_bits(r.dv, first.dv)));
      }
    }
  }
  set_threads(0);
}

TEST_CASE("attention never holds the matrix of weights") {
  const Index T = 4096;
  const AttentionData x = random_attention({1, 1, 1, T, T, 16, 16});
  Tape tape;
  const Tensor q = tape.watch(x.q.to(DType::float32)), k = tape.watch(x.k.to(DType::float32)),
               v = tape.watch(x.v.to(DType::float32));
  reset_peak_memory();
  const std::size_t before = memory_use().current;
  const Tensor y = attention(q, k, v, {.causal = true});
  tape.backward(y, x.dout.to(DType::float32));
  CHECK(memory_use().peak - before < static_cast<std::size_t>(T * T) * 4 / 4);  // the matrix would take 64 MB
}

TEST_CASE("attention: padding may hold NaN without any effect") {
  on_each_level([] {
    for (const DType dtype : {DType::float64, DType::float32}) {
      AttentionData x = random_attention({2, 4, 2, 40, 90, 16, 8});
      AttentionCall o{.causal = true,
                         .key_lengths = Tensor::from<std::int32_t>({60, 90}),
                         .key_mask = random_mask({2, 90}, 0.7, 3)};
      const AttentionResult expected = run_attention(x, o, dtype);
      for (Index b = 0; b < 2; ++b)
        for (Index h = 0; h < 2; ++h)
          for (Index j = 0; j < 90; ++j) {
            if (j < static_cast<Index>(o.key_lengths.at({b})) && o.key_mask.at({b, j}) != 0) continue;
            Tensor kj = x.k[b][h][j], vj = x.v[b][h][j];
            kj.fill_(kNaN);
            vj.fill_(j % 2 ? kNaN : std::numeric_limits<double>::infinity());
          }
      const AttentionResult got = run_attention(x, o, dtype);
      CHECK(same_bits(got.out, expected.out));
      CHECK(same_bits(got.dq, expected.dq));
      CHECK(same_bits(got.dk, expected.dk));  // 0 for masked keys, as with finite padding
      CHECK(same_bits(got.dv, expected.dv));
      for (Index j = 60; j < 90; ++j) CHECK((got.dk.at({0, 0, j, 3}) == 0 && got.dv.at({0, 1, j, 3}) == 0));
    }
  });
}

TEST_CASE("attention: keys hidden by a pair mask or by causality have no effect, even NaN") {
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
      CHECK(!std::isnan(got.dv.at({0, 0, 75, 0})) == false);  // query 75 sees key 70
    }
    // Also if a tile has fewer queries than lanes.
    AttentionData few = random_attention({1, 1, 1, 3, 6, 8, 8});
    const AttentionCall even{.mask = Tensor::from({1, 0, 1, 0, 1, 0}).to(DType::bool8)};
    const AttentionResult without = run_attention(few, even);
    for (const Tensor& t : {few.k, few.v})
      for (Index j = 1; j < 6; j += 2) {
        Tensor row = t[0][0][j];
        row.fill_(kNaN);
      }
    CHECK(attention_error(run_attention(few, even), without) < 1e-13);
    // A NaN in a query, or in its output's gradient, affects exactly the gradients of the keys that the query sees.
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
    // A row without keys passes no gradient on, even if its query or gradient is NaN.
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

TEST_CASE("attention with empty tensors") {
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

TEST_CASE("attention refuses arguments that do not fit") {
  const auto f = [](const Shape& s) { return Tensor::zeros(s); };
  const Tensor q = f({2, 4, 5, 8}), k = f({2, 2, 7, 8}), v = f({2, 2, 7, 6});
  const auto refuses = [](auto&& run, const std::string& part) { CHECK(contains(error_of(run), part)); };
  refuses(
      [&] {
        attention(f({4, 5, 8}), k, v);
      },
      "attention: q is [4, 5, 8] float32, k is [2, 2, 7, 8] float32 and v is [2, 2, 7, 6] float32; they must be "
      "[batch, heads, length, width]");
  refuses([&] { attention(q, k.to(DType::float64), v); }, "all must be float32, all bfloat16, or all float64");
  refuses([&] { attention(q, f({2, 2, 7, 9}), v); }, "batch and width must be the same");
  refuses([&] { attention(q, k, f({2, 2, 8, 6})); }, "all axes except the last must be the same");
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

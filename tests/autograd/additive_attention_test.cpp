// Values and gradients of additive attention against plain loops over all pairs.
#include <heed/autograd/attention.hpp>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/tape.hpp>
#include <heed/core/memory.hpp>
#include <heed/core/parallel.hpp>

#include "tests/autograd/additive_reference.hpp"
#include "tests/core/levels.hpp"

using namespace heed;
using namespace heed::test;

namespace {

Tensor weights_of(const AdditiveData& x, const AttentionCall& o) {
  return weights_by([&](In v) { return additive_attention(x.pairs.q, x.pairs.k, v, x.u, o); }, x.pairs.k);
}

void check_additive(const AttentionSize& s, const AttentionCall& o) {
  const AdditiveData x = random_additive(s);
  const AdditiveResult expected = naive_additive(x, o);
  CAPTURE(s.queries);
  CAPTURE(s.keys);
  CAPTURE(s.width);
  CAPTURE(s.value_width);
  CHECK(additive_error(run_additive(x, o), expected) < 1e-12);
  CHECK(additive_error(run_additive(x, o, DType::float32), expected) < 3e-6);
  CHECK(close(weights_of(x, o), expected.pairs.weights, 1e-12, 1e-13));
}

}  // namespace

TEST_CASE("additive attention equals the naive loops at lengths and widths around vectors, on each level") {
  on_each_float_level([] {
    for (Index n : {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 130}) {
      check_additive({1, 1, 1, n, n, 8, 8}, {.causal = true});
      check_additive({1, 2, 1, n, 37, 5, 9}, {});
      check_additive({2, 1, 1, 6, n, 9, 5}, {.causal = true});
      check_additive({1, 1, 1, n, 40, 6, 7}, {.causal = true});
    }
    for (Index d : {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 130}) {
      check_additive({1, 1, 1, 9, 35, d, 6}, {.causal = true});
      check_additive({1, 1, 1, 7, 21, 6, d}, {});
    }
    check_additive({1, 1, 1, 120, 250, 32, 32}, {.causal = true});
    check_additive({1, 1, 1, 90, 40, 16, 16}, {.causal = true});  // the first rows have no keys
    check_additive({2, 4, 2, 1, 300, 24, 16}, {});
  });
}

TEST_CASE("additive attention takes lengths, masks, biases and grouped heads together, on each level") {
  on_each_float_level([] {
    for (const AttentionSize& s :
         {AttentionSize{2, 4, 2, 35, 50, 8, 12}, AttentionSize{2, 4, 1, 19, 19, 17, 16}, {2, 2, 2, 30, 20, 3, 3}})
      for (int bits = 1; bits < 32; ++bits) {
        AttentionCall o = call_of_bits(bits, s);
        if (bits & 8)
          o.mask =
              random_mask(bits & 4 ? Shape{s.queries, s.keys} : Shape{s.batch, s.heads, s.queries, s.keys}, 0.5, 4);
        if (bits & 16)
          o.bias = Rng(5).normal(bits & 4 ? Shape{s.batch, 1, 1, s.keys} : Shape{s.heads, s.queries, s.keys}, 0, 1,
                                 DType::float64);
        CAPTURE(bits);
        const AdditiveData x = random_additive(s);
        const AdditiveResult expected = naive_additive(x, o);
        const AdditiveResult doubles = run_additive(x, o), floats = run_additive(x, o, DType::float32);
        CHECK(additive_error(doubles, expected) < 1e-12);
        CHECK(additive_error(floats, expected) < 3e-6);
        if (o.bias.defined())
          CHECK(worst(doubles.pairs.dbias, detail::sum_to(expected.pairs.dbias, o.bias.shape()), 0, 1e-12) < 1);
        CHECK(close(weights_of(x, o), expected.pairs.weights, 1e-12, 1e-13));
      }
  });
}

TEST_CASE("additive attention passes gradcheck in float64") {
  const AdditiveData x = random_additive({2, 4, 2, 5, 7, 3, 4});
  const Tensor bias = Rng(4).normal({4, 5, 7}, 0, 1, DType::float64), mask = random_mask({2, 4, 5, 7}, 0.5, 9);
  const AttentionCall cases[] = {{},
                                            {.causal = true},
                                            {.key_lengths = Tensor::from<std::int32_t>({7, 2})},
                                            {.causal = true, .key_mask = random_mask({2, 7}, 0.6, 10)},
                                            {.causal = true, .mask = mask},
                                            {.mask = mask, .dropout = 0.4}};
  const std::vector<Tensor> inputs = {x.pairs.q, x.pairs.k, x.pairs.v, x.u, bias};
  for (const AttentionCall& o : cases) {
    gradcheck(
        [&](const std::vector<Tensor>& in) {
          manual_seed(3);
          return additive_attention(in[0], in[1], in[2], in[3], o);
        },
        {x.pairs.q, x.pairs.k, x.pairs.v, x.u});
    gradcheck(
        [&](const std::vector<Tensor>& in) {
          AttentionCall with = o;
          with.bias = in[4];
          manual_seed(3);
          return additive_attention(in[0], in[1], in[2], in[3], with);
        },
        inputs);
  }
  // One tensor as queries, keys and values, and views with gaps.
  gradcheck(
      [&](const std::vector<Tensor>& in) {
        return additive_attention(in[0], in[0], in[0].transpose(2, 3).contiguous().transpose(2, 3),
                                  in[0][0].select(1, 2), {.causal = true});
      },
      {Rng(2).normal({2, 2, 5, 4}, 0, 1, DType::float64)});
}

TEST_CASE("additive attention drops the weights that Philox names, and only in training") {
  const AdditiveData x = random_additive({2, 2, 1, 21, 70, 8, 8});
  on_each_float_level([&] {
    for (const bool causal : {false, true}) {
      const AttentionCall o{.causal = causal, .dropout = 0.3};
      manual_seed(11);
      default_rng().advance(5);
      const Rng before = default_rng();
      const AdditiveResult expected = naive_additive(x, o, &before);
      CHECK(additive_error(run_additive(x, o), expected) < 1e-12);
      CHECK(default_rng().position() == before.position() + 2 * 2 * 21 * 18);
      default_rng() = before;
      CHECK(additive_error(run_additive(x, o, DType::float32), expected) < 3e-6);
      const Evaluation evaluation;
      CHECK(same_bits(additive_attention(x.pairs.q, x.pairs.k, x.pairs.v, x.u, o),
                      additive_attention(x.pairs.q, x.pairs.k, x.pairs.v, x.u, {.causal = causal})));
    }
  });
}

TEST_CASE("additive attention: masked keys may be NaN, later keys change nothing, rows without keys are zeros") {
  on_each_float_level([] {
    const AttentionSize s{2, 2, 1, 70, 70, 7, 9};
    const AdditiveData x = random_additive(s);
    for (const DType dtype : {DType::float32, DType::float64}) {
      AttentionCall o{.causal = true, .key_lengths = Tensor::from<std::int32_t>({70, 35})};
      const auto same_with_nan = [&](const auto& spoil) {
        AdditiveData dirty = x;
        dirty.pairs.k = x.pairs.k.clone(), dirty.pairs.v = x.pairs.v.clone();
        spoil(dirty.pairs.k), spoil(dirty.pairs.v);
        const std::vector<Tensor> got = tensors_of(run_additive(dirty, o, dtype)),
                                  expected = tensors_of(run_additive(x, o, dtype));
        for (std::size_t n = 0; n < got.size(); ++n) CHECK(same_bits(got[n], expected[n]));
      };
      same_with_nan([](Tensor& t) { t[1].slice(1, 35, 70).fill_(kNaN); });
      o = {.key_mask = random_mask({2, 70}, 0.5, 3)};
      same_with_nan([&](Tensor& t) {
        for (Index b = 0; b < 2; ++b)
          for (Index j = 0; j < 70; ++j)
            if (o.key_mask.at({b, j}) == 0) t[b].slice(1, j, j + 1).fill_(kNaN);
      });
      o = {.mask = Tensor::ones({70, 70}, DType::bool8)};
      o.mask.slice(1, 11, 12).fill_(0);
      same_with_nan([](Tensor& t) { t.slice(2, 11, 12).fill_(kNaN); });

      // Keys and values after position 50 do not affect query 50 and earlier ones, even if they are NaN.
      const Tensor q = x.pairs.q.to(dtype), k = x.pairs.k.to(dtype), v = x.pairs.v.to(dtype), u = x.u.to(dtype);
      const Tensor before = additive_attention(q, k, v, u, {.causal = true});
      Tensor later_k = k.clone(), later_v = v.clone();
      later_k.slice(2, 51, 70).fill_(kNaN);
      later_v.slice(2, 51, 70).fill_(kNaN);
      const Tensor after = additive_attention(q, later_k, later_v, u, {.causal = true});
      CHECK(same_bits(after.slice(2, 0, 51).contiguous(), before.slice(2, 0, 51).contiguous()));

      // Without any key.
      o = {.key_lengths = Tensor::from<std::int32_t>({0, 3})};
      const AdditiveResult none = run_additive(x, o, dtype);
      for (const Tensor& t : {none.pairs.out, none.pairs.dq, none.pairs.dk, none.pairs.dv})
        for (const double value : t[0].to_vector<double>()) CHECK_UNARY(value == 0);
    }
  });
}

TEST_CASE("additive attention keeps its precision where scores and tanh are large") {
  on_each_float_level([] {
    AdditiveData x = random_additive({1, 1, 1, 12, 90, 16, 8});
    x.u = x.u * 100.0;  // scores of a few hundred, which float32 represents to 4 or 5 decimals
    const AdditiveResult expected = naive_additive(x, {});
    CHECK(additive_error(run_additive(x, {}), expected) < 1e-10);
    CHECK(additive_error(run_additive(x, {}, DType::float32), expected) < 2e-3);
    x = random_additive({1, 1, 1, 12, 90, 16, 8});
    x.pairs.q = x.pairs.q * 1e4;  // tanh is 1 or -1
    CHECK(additive_error(run_additive(x, {}), naive_additive(x, {})) < 1e-12);
    CHECK(additive_error(run_additive(x, {}, DType::float32), naive_additive(x, {})) < 1e-5);
  });
}

TEST_CASE("additive attention has the same bits at any number of threads") {
  const AttentionSize sizes[] = {{1, 1, 1, 150, 200, 16, 16}, {2, 4, 2, 33, 33, 9, 7}, {3, 6, 6, 20, 60, 8, 8}};
  for (const AttentionSize& s : sizes) {
    const AdditiveData x = random_additive(s);
    for (const DType dtype : {DType::float32, DType::float64}) {
      const auto run = [&](int n) {
        set_threads(n);
        manual_seed(3);
        return tensors_of(run_additive(x, {.causal = true, .dropout = 0.1}, dtype));
      };
      const std::vector<Tensor> one = run(1);
      for (const int n : {2, 3, 8}) {
        const std::vector<Tensor> many = run(n);
        for (std::size_t i = 0; i < one.size(); ++i) CHECK(same_bits(many[i], one[i]));
      }
    }
  }
  set_threads(0);
}

TEST_CASE("additive attention holds neither T x S x A nor T x S numbers") {
  const Index T = 1024, A = 8;
  const AdditiveData x = random_additive({1, 1, 1, T, T, A, A});
  Tape tape;
  const Tensor q = tape.watch(x.pairs.q.to(DType::float32)), k = tape.watch(x.pairs.k.to(DType::float32)),
               v = tape.watch(x.pairs.v.to(DType::float32)), u = tape.watch(x.u.to(DType::float32));
  reset_peak_memory();
  const std::size_t before = memory_use().current;
  const Tensor y = additive_attention(q, k, v, u);
  tape.backward(y, y.detach());
  // The op stores 16 partial gradients of keys and values and a few rows of scores per thread. T x S floats would be 4
  // MB.
  CHECK(memory_use().peak - before < static_cast<std::size_t>(T * T) * 4 * 3 / 4);
}

TEST_CASE("additive attention: errors name the wrong argument") {
  const Tensor x = Tensor::ones({2, 2, 3, 4}), u = Tensor::ones({2, 4});
  const auto with = [&](const AttentionCall& o) { return [=] { additive_attention(x, x, x, u, o); }; };
  check_errors({
      {"additive_attention: q is [2, 3, 4]", [&] { additive_attention(x[0], x, x, u); }},
      {"but u is [4] float32; it must be [heads, width] [2, 4] float32", [&] { additive_attention(x, x, x, u[0]); }},
      {"but u is [2, 4] float64", [&] { additive_attention(x, x, x, u.to(DType::float64)); }},
      {"key_lengths is [3] int32; it must be [2] int32", with({.key_lengths = Tensor::ones({3}, DType::int32)})},
      {"mask is [3, 3] float32; it must be bool8 (a bias is added to scores)", with({.mask = Tensor::ones({3, 3})})},
      {"mask is [4, 3] bool8; it must broadcast to [batch, heads, queries, keys] [2, 2, 3, 3]",
       with({.mask = Tensor::ones({4, 3}, DType::bool8)})},
      {"bias is [5] float32; it must broadcast to", with({.bias = Tensor::ones({5})})},
      {"bias is [3] float64 and q is [2, 2, 3, 4] float32; the dtypes must be the same",
       with({.bias = Tensor::ones({3}, DType::float64)})},
      {"dropout is 1.5; it must be in [0, 1]", with({.dropout = 1.5})},
  });
}

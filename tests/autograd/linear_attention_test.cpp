// Linear attention: values and gradients against plain loops over all pairs. With few heads, the op divides the
// sequence into spans that threads compute in parallel; results equal those of many heads without spans.
// Above 400 lines, because one op has all these options.
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/reductions.hpp>
#include <heed/autograd/tape.hpp>
#include <heed/core/memory.hpp>
#include <heed/core/parallel.hpp>

#include "tests/autograd/linear_bf16.hpp"
#include "tests/core/levels.hpp"
#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;

namespace {

void check_linear(const AttentionSize& s, const LinearCase& o) {
  const FeatureMap map = o.features.feature_map;
  const AttentionData x = data_for(s, map);
  const AttentionResult expected = naive_linear(x, o);
  CAPTURE(s.queries);
  CAPTURE(s.keys);
  CAPTURE(s.width);
  CAPTURE(s.value_width);
  CAPTURE(static_cast<int>(map));
  on_each_level([&] {
    CHECK(attention_error(run_linear(x, o), expected) < 1e-12);
    // With one feature, o depends on q only by eps: the terms of dq have order 1 and cancel to their rounding errors.
    CHECK(attention_error(run_linear(x, o, DType::float32), expected, s.width == 1 ? 1 : 0.1) < 3e-6);
  });
}

// The feature maps whose kernels read bfloat16.
constexpr FeatureMap kMapsOfBfloat16[] = {FeatureMap::elu, FeatureMap::relu, FeatureMap::softplus};

void check_half(const AttentionSize& s, const LinearCase& o) {
  const AttentionData x = rounded(random_attention(s, 7));
  const AttentionResult expected = naive_linear(x, o), bounds = linear_bounds(x, o, expected);
  CAPTURE(s.queries);
  CAPTURE(s.keys);
  CAPTURE(s.width);
  CAPTURE(s.value_width);
  CAPTURE(static_cast<int>(o.features.feature_map));
  on_each_level([&] {
    const AttentionResult got = run_half(x, o);
    CHECK((got.out.dtype() == DType::bfloat16 && got.dq.dtype() == DType::float32));
    CHECK(share(got.out, expected.out, bounds.out) < 1);
    CHECK(share(got.dq, expected.dq, bounds.dq) < 1);
    CHECK(share(got.dk, expected.dk, bounds.dk) < 1);
    CHECK(share(got.dv, expected.dv, bounds.dv) < 1);
    if (o.call.bias.defined() && o.call.bias.numel() == expected.dbias.numel())
      CHECK(share(got.dbias, expected.dbias, bounds.dbias) < 1);
  });
}

}  // namespace

TEST_CASE("linear attention equals the naive loops at lengths and widths around chunks and vectors, on each level") {
  for (Index n : {1, 2, 3, 15, 16, 17, 31, 32, 33, 63, 64, 65, 97, 128, 130, 257}) {
    check_linear({1, 1, 1, n, n, 8, 8}, {{.causal = true}});
    check_linear({1, 2, 1, n, 70, 5, 9}, {});
    check_linear({2, 1, 1, 35, n, 9, 5}, {{.causal = true}});
    check_linear({1, 1, 1, n, 40, 6, 7}, {{.causal = true}});
  }
  for (Index d : {1, 3, 4, 15, 16, 17, 31, 32, 33, 63, 64, 65, 130}) {
    check_linear({1, 1, 1, 70, 70, d, 16}, {{.causal = true}});
    check_linear({1, 1, 1, 37, 69, 16, d}, {});
  }
  for (const FeatureMap map : kMaps) {
    check_linear({2, 2, 2, 100, 100, 12, 10}, {{.causal = true}, {.feature_map = map}});
    check_linear({2, 2, 2, 30, 70, 12, 10}, {{}, {.feature_map = map, .eps = 1e-3}});
  }
  for (const double alpha : {0.1, 0.3, 0.9}) {
    check_linear({2, 2, 2, 100, 100, 12, 10}, {{.causal = true}, {.alpha = alpha}});
    check_linear({2, 2, 2, 30, 70, 17, 10}, {{}, {.alpha = alpha}});
  }
  check_linear({1, 1, 1, 500, 1000, 64, 64}, {{.causal = true}});
  check_linear({1, 1, 1, 1000, 500, 32, 64}, {{.causal = true}});  // the first rows have no keys
}

TEST_CASE("linear attention takes lengths, masks, key biases and grouped heads together, on each level") {
  for (const AttentionSize& s :
       {AttentionSize{2, 4, 2, 35, 67, 8, 12}, AttentionSize{2, 4, 1, 90, 90, 16, 16}, {2, 2, 2, 70, 20, 3, 3}})
    for (int bits = 1; bits < 16; ++bits) {
      AttentionCall o = call_of_bits(bits, s);
      if (bits & 8)
        o.bias = Rng(5).normal(bits & 4 ? Shape{s.batch, 1, 1, s.keys} : Shape{s.keys}, 0, 1, DType::float64);
      CAPTURE(bits);
      const AttentionData x = random_attention(s);
      const AttentionResult expected = naive_linear(x, {o});
      on_each_level([&] {
        const AttentionResult doubles = run_linear(x, {o}), floats = run_linear(x, {o}, DType::float32);
        CHECK(attention_error(doubles, expected) < 1e-12);
        CHECK(attention_error(floats, expected) < 3e-6);
        if (o.bias.defined()) CHECK(worst(doubles.dbias, detail::sum_to(expected.dbias, o.bias.shape()), 0, 1e-12) < 1);
      });
    }
}

// Terms of order 1000 cancel to about 1 in each product of q and k, and terms of order 10^6 in its square.
TEST_CASE("poly2 in float32 keeps the digits of queries and keys that are nearly orthogonal") {
  const Index half = 16;
  Rng rng(3);
  const auto part = [&](Index n, double spread) { return rng.normal({1, 1, n, half}, 0, spread); };
  for (const Index n : {1, 40, 600})  // by scores, and above 32 * 33 / 2 keys by features
    for (const bool causal : {false, true}) {
      CAPTURE(n);
      CAPTURE(causal);
      const Tensor a = part(n, 30), b = part(n, 30), e = part(n, 3e-3), f = part(n, 3e-3);
      const auto wide = [](const Tensor& x) { return x.to(DType::float64); };
      AttentionData x{wide(concatenate({a + e, a - e}, -1)), wide(concatenate({b + f, f - b}, -1)),
                      Tensor::ones({1, 1, n, 3}, DType::float64), wide(rng.normal({1, 1, n, 3}))};
      const LinearCase o{{.causal = causal}, {.feature_map = FeatureMap::poly2}};
      CHECK(close(run_linear(x, o, DType::float32).out, Tensor::ones({1, 1, n, 3}), 0, 2e-4));
      LinearAttentionSums state;  // decoding: by features and their sums
      for (Index i = 0; i < std::min<Index>(n, 3); ++i) {
        const auto at = [&](const Tensor& t) { return t.slice(2, i, i + 1).to(DType::float32); };
        CHECK(close(linear_attention_step(at(x.q), at(x.k), at(x.v), state, {}, o.features), Tensor::ones({1, 1, 1, 3}),
                    0, 2e-4));
      }
      if (n == 1) continue;  // q and k then have gradients only by eps
      x.v = wide(rng.normal({1, 1, n, 3}));
      const AttentionResult exact = run_linear(x, o), floats = run_linear(x, o, DType::float32);
      const auto share = [](const Tensor& got, const Tensor& expected) {
        return max(abs(got.to(DType::float64) - expected)).item() / max(abs(expected)).item();
      };
      CHECK(share(floats.dq, exact.dq) < 0.01);
      CHECK(share(floats.dk, exact.dk) < 0.01);
      CHECK(share(floats.dv, exact.dv) < 1e-3);
    }
}

TEST_CASE("linear attention: a key bias of minus infinity removes a key, even NaN, but no other key's NaN") {
  for (const FeatureMap map : kMaps)
    for (const bool causal : {false, true}) {
      CAPTURE(static_cast<int>(map));
      CAPTURE(causal);
      const AttentionData x = data_for({1, 2, 2, 90, 90, 6, 5}, map);
      const Tensor mask = Tensor::arange(90).unsqueeze(0) < 7;  // the bias hides the others
      const Tensor bias = where(mask, Tensor::zeros({1, 90}, DType::float64), -heed::detail::kInfinity);
      AttentionData dirty = x;
      dirty.k = x.k.clone(), dirty.v = x.v.clone();
      dirty.k.slice(2, 7, 90).fill_(kNaN), dirty.v.slice(2, 7, 90).fill_(kNaN);
      const bool checked = map == FeatureMap::identity;
      const Tensor expected =
          linear_attention(x.q, x.k, x.v, {.causal = causal, .key_mask = mask}, {.feature_map = map});
      const LinearFeatures features{.feature_map = map, .signed_features = checked};
      CHECK(close(linear_attention(dirty.q, dirty.k, dirty.v, {.causal = causal, .bias = bias}, features), expected,
                  1e-12, 1e-12));
      // Weights of relu are often 0, but a NaN in a value must still show.
      dirty = x;
      dirty.v = x.v.clone();
      dirty.v.slice(2, 3, 4).fill_(kNaN);
      const Tensor y = linear_attention(dirty.q, dirty.k, dirty.v, {.causal = causal}, {.feature_map = map});
      for (Index i = 0; i < 90; ++i) CHECK(std::isnan(y.at({0, 1, i, 2})) == (!causal || i >= 3));
    }
}

TEST_CASE("linear attention passes gradcheck in float64") {
  const AttentionSize s{2, 4, 2, 5, 7, 3, 4};
  const Tensor bias = Rng(4).normal({2, 1, 1, 7}, 0, 1, DType::float64);
  for (const FeatureMap map : kMaps) {
    const AttentionData x = data_for(s, map);
    const LinearCase cases[] = {{{}, {.feature_map = map}},
                                {{.causal = true}, {.feature_map = map}},
                                {{.key_lengths = Tensor::from<std::int32_t>({7, 2})}, {.feature_map = map, .eps = 0.1}},
                                {{.causal = true, .key_mask = random_mask({2, 7}, 0.6, 10)}, {.feature_map = map}}};
    for (const LinearCase& o : cases) {
      gradcheck(
          [&](const std::vector<Tensor>& in) { return linear_attention(in[0], in[1], in[2], o.call, o.features); },
          {x.q, x.k, x.v}, {.min_samples = thinned<Index>(200, 10)});
      gradcheck(
          [&](const std::vector<Tensor>& in) {
            AttentionCall with = o.call;
            with.bias = in[3];
            return linear_attention(in[0], in[1], in[2], with, o.features);
          },
          {x.q, x.k, x.v, bias}, {.min_samples = thinned<Index>(200, 10)});
    }
  }
}

TEST_CASE("linear attention: masked keys may be NaN, later keys change nothing, rows without keys are zeros") {
  on_each_level([] {
    const AttentionSize s{2, 2, 1, 150, 150, 7, 9};
    const AttentionData x = random_attention(s);
    for (const DType dtype : {DType::float32, DType::float64}) {
      AttentionCall o{.causal = true, .key_lengths = Tensor::from<std::int32_t>({150, 80})};
      const AttentionResult clean = run_linear(x, {o}, dtype);
      AttentionData dirty = x;
      dirty.k = x.k.clone(), dirty.v = x.v.clone();
      dirty.k[1].slice(1, 80, 150).fill_(kNaN);
      dirty.v[1].slice(1, 80, 150).fill_(kNaN);
      const AttentionResult masked = run_linear(dirty, {o}, dtype);
      CHECK(same_bits(masked.out, clean.out));
      CHECK(same_bits(masked.dq, clean.dq));
      CHECK(same_bits(masked.dk, clean.dk));
      CHECK(same_bits(masked.dv, clean.dv));
      // Keys and values after position 99 do not affect query 99 and earlier ones, even if they are NaN.
      const AttentionCall causal{.causal = true};
      const Tensor before = linear_attention(x.q.to(dtype), x.k.to(dtype), x.v.to(dtype), causal);
      AttentionData later = x;
      later.k = x.k.clone(), later.v = x.v.clone();
      later.k.slice(2, 100, 150).fill_(1e3);
      later.v.slice(2, 100, 150).fill_(kNaN);
      const Tensor after = linear_attention(later.q.to(dtype), later.k.to(dtype), later.v.to(dtype), causal);
      CHECK(same_bits(after.slice(2, 0, 100).contiguous(), before.slice(2, 0, 100).contiguous()));
      // Without any key.
      o.key_lengths = Tensor::from<std::int32_t>({0, 3});
      const AttentionResult none = run_linear(x, {o}, dtype);
      for (const Tensor& t : {none.out, none.dq, none.dk, none.dv})
        for (const double value : t[0].to_vector<double>()) CHECK_UNARY(value == 0);
    }
  });
}

TEST_CASE("linear attention: one call equals chunks and single tokens") {
  on_each_level([] {
    const AttentionSize s{2, 4, 2, 150, 150, 9, 11};
    const AttentionData x = random_attention(s);
    for (const DType dtype : {DType::float32, DType::float64}) {
      const Tensor q = x.q.to(dtype), k = x.k.to(dtype), v = x.v.to(dtype);
      const Tensor whole = linear_attention(q, k, v, {.causal = true});
      for (const Index step : {1, 7, 64, 149}) {
        CAPTURE(step);
        LinearAttentionSums state;
        std::vector<Tensor> parts;
        for (Index i = 0; i < 150; i += step) {
          const Index end = std::min<Index>(150, i + step);
          parts.push_back(linear_attention_step(q.slice(2, i, end), k.slice(2, i, end), v.slice(2, i, end), state));
        }
        CHECK(close(concatenate(parts, 2), whole, 0, dtype == DType::float32 ? 3e-6 : 1e-13));
      }
    }
  });
}

TEST_CASE("linear attention has the same bits at any number of threads") {
  const AttentionData x = random_attention({2, 4, 2, 300, 300, 33, 40});
  const int before = threads();
  set_threads(1);
  const AttentionResult one = run_linear(x, {{.causal = true}}, DType::float32);
  for (const int n : {2, 3, 8}) {
    set_threads(n);
    const AttentionResult many = run_linear(x, {{.causal = true}}, DType::float32);
    CHECK(same_bits(many.out, one.out));
    CHECK(same_bits(many.dq, one.dq));
    CHECK(same_bits(many.dk, one.dk));
    CHECK(same_bits(many.dv, one.dv));
  }
  set_threads(before);
}

TEST_CASE("linear attention's memory grows with the length, not its square") {
  const auto bytes_at = [](Index n) {
    const AttentionData x = random_attention({1, 1, 1, n, n, 16, 16});
    const Tensor q = x.q.to(DType::float32), k = x.k.to(DType::float32), v = x.v.to(DType::float32);
    const std::size_t start = memory_use().current;
    reset_peak_memory();
    Tape tape;
    const Tensor y = linear_attention(tape.watch(q), tape.watch(k), tape.watch(v), {.causal = true});
    tape.backward(y, y.detach());
    return static_cast<double>(memory_use().peak - start);
  };
  const double at_1024 = bytes_at(1024), at_8192 = bytes_at(8192);
  CHECK(at_8192 < 9.5 * at_1024);
  CHECK(at_8192 < 8192.0 * 16 * 4 * 12);  // twelve tensors of the size of q
}

TEST_CASE("linear attention: errors name the wrong argument") {
  const Tensor x = Tensor::ones({2, 2, 3, 4});
  LinearAttentionSums state;
  CHECK(contains(error_of([&] { linear_attention(x[0], x, x); }), "linear_attention: q is [2, 3, 4]"));
  CHECK(contains(error_of([&] { linear_attention(x, x, x, {}, {.eps = -1}); }), "eps is -1; it must be in [0, 1)"));
  for (const double alpha : {0.0, -0.1, 1.5, static_cast<double>(NAN)})
    CHECK(contains(error_of([&] { linear_attention(x, x, x, {}, {.alpha = alpha}); }),
                   "it must be above 0 and at most 1"));
  CHECK(contains(error_of([&] { linear_attention(x, x, x, {.key_lengths = Tensor::ones({3}, DType::int32)}); }),
                 "key_lengths is [3] int32; it must be [2] int32"));
  CHECK(contains(error_of([&] { linear_attention(x, x, x, {.bias = Tensor::ones({5})}); }), "bias is [5] float32"));
  for (const AttentionCall& call : {AttentionCall{.mask = Tensor::ones({3, 3}, DType::bool8)}, {.dropout = 0.1}})
    CHECK(contains(error_of([&] { linear_attention(x, x, x, call); }), "mask or dropout is given"));
  CHECK(contains(error_of([&] {
                   linear_attention(x, x, x, {.bias = Tensor::ones({3, 3})});
                 }),
                 "it must have q's dtype and broadcast to [batch, heads, 1, keys]"));
  CHECK(contains(error_of([&] { linear_attention_step(x, x.slice(2, 0, 2), x.slice(2, 0, 2), state); }),
                 "a step requires as many queries as keys"));
  linear_attention_step(x, x, x, state);
  const Tensor other = Tensor::ones({2, 2, 1, 5});
  CHECK(contains(error_of([&] { linear_attention_step(other, other, other, state); }), "but the state holds"));
  CHECK(contains(error_of([&] { linear_attention_step(x, x, x, state, {}, {.feature_map = FeatureMap::exp}); }),
                 "the state was made with another feature map; all steps must use the same one"));
  CHECK(state.sums.shape() == Shape{2, 2, 4, 4});
}

namespace {

enum class Op { linear, exp, efficient };
constexpr Index kMany = 8;  // with this number of heads or more, no sequence is divided

Tensor attend(Op op, In q, In k, In v, const AttentionCall& call) {
  if (op == Op::efficient) return efficient_attention(q, k, v, call);
  return linear_attention(q, k, v, call, {.feature_map = op == Op::exp ? FeatureMap::exp : FeatureMap::elu});
}

// Output, dq, dk and dv.
std::vector<Tensor> results(Op op, const AttentionData& x, const AttentionCall& o, DType dtype = DType::float64) {
  Tape tape;
  const Tensor q = tape.watch(x.q.to(dtype)), k = tape.watch(x.k.to(dtype)), v = tape.watch(x.v.to(dtype));
  const Tensor y = attend(op, q, k, v, o);
  tape.backward(y, x.dout.to(dtype));
  return {y.detach(), tape.grad(q), tape.grad(k), tape.grad(v)};
}

AttentionData repeated(const AttentionData& x) {
  const auto many = [](const Tensor& t) { return t.expand(t.shape().with(1, kMany)).clone(); };
  AttentionData y = x;
  y.q = many(x.q), y.k = many(x.k), y.v = many(x.v), y.dout = many(x.dout);
  return y;
}

void check_spans(Op op, const AttentionData& x, const AttentionCall& o) {
  CAPTURE(static_cast<int>(op));
  CAPTURE(x.q.dim(2));
  CAPTURE(x.k.dim(2));
  CAPTURE(o.causal);
  const std::vector<Tensor> cut = results(op, x, o), whole = results(op, repeated(x), o);
  for (std::size_t i = 0; i < cut.size(); ++i) {
    CAPTURE(i);
    const Tensor expected = whole[i].slice(1, 3, 4);
    const double scale = norm(expected).item();
    CHECK(scale > 0);
    CHECK(close(cut[i], expected, 0, 1e-12 * scale));
  }
}

constexpr Op kOps[] = {Op::linear, Op::exp, Op::efficient};

}  // namespace

TEST_CASE("linear attention: few heads in spans equal many heads, causal or not, T != S, masked, on each level") {
  on_each_level([] {
    for (const Op op : kOps) {
      const AttentionData square = random_attention({1, 1, 1, 2500, 2500, 8, 9});
      check_spans(op, square, {.causal = true});
      check_spans(op, square, {});
      const AttentionData prefix = random_attention({1, 1, 1, 2200, 3300, 5, 8});
      check_spans(op, prefix, {.causal = true, .key_lengths = Tensor::from<std::int32_t>({3100})});
      check_spans(op, random_attention({1, 1, 1, 2900, 2300, 6, 4}), {.causal = true});
      AttentionCall some{.causal = true, .key_mask = Tensor::ones({1, 2500}, DType::bool8)};
      some.key_mask.slice(1, 0, 700).zero_();  // the first spans have no visible keys
      check_spans(op, square, some);
    }
  });
}

TEST_CASE("linear attention: no precision is lost if maxima of logarithms rise by hundreds between spans") {
  AttentionData x = random_attention({1, 1, 1, 2500, 2500, 6, 5});
  for (Index j = 0; j < 2500; ++j)
    for (Index c = 0; c < 6; ++c)
      x.k.ptr<double>()[j * 6 + c] += 250.0 * static_cast<double>(j / 700 % (2 + c % 2)) - 100.0;
  for (const Op op : {Op::exp, Op::efficient}) check_spans(op, x, {.causal = true});
}

// The op sums chunks of 64 keys and then the sums of chunks, so the error is at most about (64 + n / 64) 2^-24 of the
// magnitude of the terms. A result needs several such sums, but rounding errors cancel, so its worst element stays
// within the bound of one sum.
TEST_CASE("linear attention: spans in float32 agree with float64, on each level") {
  on_each_level([] {
    const AttentionData x = random_attention({1, 2, 2, 2500, 2500, 8, 9});
    const double bound = (64 + 2500.0 / 64) * 0x1p-24;
    for (const Op op : kOps)
      for (const bool causal : {true, false}) {
        const std::vector<Tensor> floats = results(op, x, {.causal = causal}, DType::float32),
                                  expected = results(op, x, {.causal = causal});
        for (std::size_t i = 0; i < expected.size(); ++i) {
          const double largest = max(abs(expected[i])).item();
          INFO("op ", static_cast<int>(op), ", causal ", causal, ", result ", i);
          CHECK(floats[i].dtype() == DType::float32);
          CHECK(worst(floats[i].to(DType::float64), expected[i], 0, bound * largest) <= 1);
        }
      }
  });
}

TEST_CASE("linear attention: spans have the same bits at any number of threads") {
  const int before = threads();
  const AttentionData x = random_attention({1, 2, 2, 2500, 2500, 8, 8});
  for (const Op op : kOps)
    for (const DType dtype : {DType::float32, DType::float64}) {
      std::vector<Tensor> first;
      for (const int n : {1, 2, 3, 8}) {
        set_threads(n);
        const std::vector<Tensor> now = results(op, x, {.causal = true}, dtype);
        if (n == 1) first = now;
        for (std::size_t i = 0; i < now.size(); ++i) CHECK(same_bits(now[i], first[i]));
      }
    }
  set_threads(before);
}

TEST_CASE("linear attention of bfloat16 is within its roundings of the naive loops, on each level") {
  at_block_and_vector_sizes([](const AttentionSize& s, bool causal) { check_half(s, {{.causal = causal}}); });
  for (const FeatureMap map : kMapsOfBfloat16)
    for (const bool causal : {false, true})
      check_half({2, 2, 2, 70, 100, 12, 10}, {{.causal = causal}, {.feature_map = map, .alpha = 0.2}});
}

TEST_CASE("linear attention of bfloat16 takes lengths, masks, key biases and grouped heads together, on each level") {
  for (const AttentionSize& s : {AttentionSize{2, 4, 2, 35, 67, 8, 12}, AttentionSize{2, 4, 1, 90, 90, 16, 16}})
    for (int bits = 1; bits < 16; ++bits) {
      AttentionCall o = call_of_bits(bits, s);
      if (bits & 8) o.bias = Rng(5).normal({s.batch, s.heads, 1, s.keys}, 0, 1, DType::float64);
      CAPTURE(bits);
      check_half(s, {o});
    }
}

TEST_CASE("linear attention of bfloat16 by maps that ops compute, or logarithms, is float32's, rounded") {
  const AttentionData x = rounded(random_attention({2, 2, 2, 40, 50, 6, 5}));
  const auto wide = [](const Tensor& t) { return t.to(DType::float32); };
  for (const FeatureMap map : {FeatureMap::exp, FeatureMap::poly2}) {
    const LinearFeatures f{.feature_map = map};
    CHECK(same_bits(linear_attention(half(x.q), half(x.k), half(x.v), {}, f),
                    half(linear_attention(wide(x.q), wide(x.k), wide(x.v), {}, f))));
  }
  CHECK(same_bits(efficient_attention(half(x.q), half(x.k), half(x.v)),
                  half(efficient_attention(wide(x.q), wide(x.k), wide(x.v)))));
}

TEST_CASE("linear attention of bfloat16 has the same bits at any number of threads") {
  const AttentionData x = random_attention({1, 3, 3, 1300, 1300, 33, 16});
  const int before = threads();
  set_threads(1);
  const AttentionResult one = run_half(x, {{.causal = true}});
  for (const int n : {2, 3, 8}) {
    set_threads(n);
    const AttentionResult many = run_half(x, {{.causal = true}});
    CHECK((same_bits(many.out, one.out) && same_bits(many.dq, one.dq) && same_bits(many.dk, one.dk) &&
           same_bits(many.dv, one.dv)));
  }
  set_threads(before);
}

TEST_CASE("linear attention of bfloat16 continues from float32 sums, token by token") {
  const AttentionData x = rounded(random_attention({2, 2, 2, 20, 20, 8, 17}));
  const Tensor expected = naive_linear(x, {{.causal = true}}).out;
  LinearAttentionSums state;
  for (Index i = 0; i < 20; ++i) {
    const auto at = [&](const Tensor& t) { return half(t.slice(2, i, i + 1)); };
    const Tensor y = linear_attention_step(at(x.q), at(x.k), at(x.v), state);
    CHECK(y.dtype() == DType::bfloat16);
    CHECK(close(y.to(DType::float64), expected.slice(2, i, i + 1), 0x1p-8, 1e-5));
  }
  CHECK(state.sums.dtype() == DType::float32);
}

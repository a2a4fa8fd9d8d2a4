// Values and gradients of attention over lists of keys, against plain loops over all pairs with the lists as a mask.
#include <heed/autograd/attention.hpp>
#include <heed/autograd/shape_ops.hpp>
#include <heed/autograd/tape.hpp>
#include <heed/core/memory.hpp>
#include <heed/core/parallel.hpp>

#include "tests/autograd/attention_reference.hpp"
#include "tests/core/levels.hpp"
#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;

namespace {

// The lists of keys for a mask [T, S] or [B, H, T, S].
KeyLists lists_of(const Tensor& mask) {
  const Index keys = mask.dim(-1), queries = mask.dim(-2);
  std::vector<std::int32_t> offsets, listed;
  for (Index row = 0; row < mask.numel() / std::max<Index>(keys, 1); ++row) {
    if (row % queries == 0) offsets.push_back(static_cast<std::int32_t>(listed.size()));
    for (Index j = 0; j < keys; ++j)
      if (mask.ptr<bool>()[row * keys + j]) listed.push_back(static_cast<std::int32_t>(j));
    offsets.push_back(static_cast<std::int32_t>(listed.size()));
  }
  const Shape shape = mask.rank() == 2 ? Shape{queries + 1} : Shape{mask.dim(0), mask.dim(1), queries + 1};
  return {Tensor::from(offsets, shape), Tensor::from(listed, {static_cast<Index>(listed.size())})};
}

Tensor both(const Tensor& a, const Tensor& b, const Shape& grid) {
  Tensor y = Tensor::zeros(grid, DType::bool8);
  const Tensor x = a.expand(grid).dense(), z = b.defined() ? b.expand(grid).dense() : x;
  for (Index i = 0; i < y.numel(); ++i) y.ptr<bool>()[i] = x.ptr<bool>()[i] && z.ptr<bool>()[i];
  return y;
}

// The call for the reference of dense attention: the lists as a mask.
AttentionCall dense_options(const AttentionData& x, const Tensor& pattern, const AttentionCall& o) {
  return {.key_lengths = o.key_lengths,
          .key_mask = o.key_mask,
          .mask = both(pattern, o.mask, {x.q.dim(0), x.q.dim(1), x.q.dim(2), x.k.dim(2)}),
          .bias = o.bias,
          .dropout = o.dropout};
}

AttentionResult run_sparse(const AttentionData& x, const KeyLists& lists, AttentionCall o,
                           DType dtype = DType::float64, std::optional<double> scale = {}) {
  Tape tape;
  const Tensor q = tape.watch(x.q.to(dtype)), k = tape.watch(x.k.to(dtype)), v = tape.watch(x.v.to(dtype));
  if (o.bias.defined()) o.bias = tape.watch(o.bias.to(dtype));
  const Tensor dout = x.dout.to(dtype);
  AttentionResult r;
  const Tensor y = sparse_attention(q, k, v, lists, o, scale);
  tape.backward(y, dout);
  r.out = y.detach();
  r.dq = tape.grad(q), r.dk = tape.grad(k), r.dv = tape.grad(v);
  if (o.bias.defined()) r.dbias = tape.grad(o.bias);
  return r;
}

void check_sparse(const AttentionSize& s, bool own_lists = false, double share = 0.4) {
  const AttentionData x = random_attention(s);
  const Tensor pattern =
      random_mask(own_lists ? Shape{s.batch, s.heads, s.queries, s.keys} : Shape{s.queries, s.keys}, share, 5);
  const AttentionResult expected = naive_attention(x, dense_options(x, pattern, {}));
  const KeyLists lists = lists_of(pattern);
  CAPTURE(s.queries);
  CAPTURE(s.keys);
  CAPTURE(s.width);
  CAPTURE(s.value_width);
  CHECK(attention_error(run_sparse(x, lists, {}), expected) < 1e-12);
  CHECK(attention_error(run_sparse(x, lists, {}, DType::float32), expected) < 3e-6);
  const Tensor weights = weights_by([&](In v) { return sparse_attention(x.q, x.k, v, lists); }, x.k);
  CHECK(worst(weights, expected.weights, 0, 1e-12) < 1);
}

bool same(const AttentionResult& a, const AttentionResult& b) {
  return same_bits(a.out, b.out) && same_bits(a.dq, b.dq) && same_bits(a.dk, b.dk) && same_bits(a.dv, b.dv);
}

}  // namespace

TEST_CASE("sparse attention equals the naive loops at lengths and widths around vectors, on each level") {
  on_each_float_level([] {
    for (const Index n : {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 65, 130}) {
      check_sparse({1, 2, 1, n, 20, 5, 9});
      check_sparse({2, 1, 1, 20, n, 9, 5}, true);
      check_sparse({1, 1, 1, n, n, 16, 16}, false, 1);  // lists of every length up to n
    }
    for (const Index d : {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 63, 64, 65, 130}) {
      check_sparse({1, 1, 1, 23, 19, d, 16});
      check_sparse({1, 2, 2, 17, 21, 16, d}, true);
    }
    check_sparse({2, 6, 2, 40, 50, 8, 12}, true);
    check_sparse({2, 6, 2, 40, 50, 8, 12}, false, 0.03);  // some lists are empty
  });
}

TEST_CASE("sparse attention takes lengths, masks, biases and dropout together, on each level") {
  on_each_float_level([] {
    const AttentionSize s{2, 4, 2, 21, 27, 8, 12};
    const AttentionData x = random_attention(s);
    for (const bool own : {false, true})
      for (int bits = 1; bits < 32; ++bits) {
        const Tensor pattern = random_mask(own ? Shape{2, 4, 21, 27} : Shape{21, 27}, 0.5, 6);
        AttentionCall o;
        if (bits & 1) o.key_lengths = Tensor::from<std::int32_t>({24, 5});
        if (bits & 2) o.key_mask = random_mask({2, 27}, 0.6, 3);
        if (bits & 4) o.mask = random_mask(bits & 1 ? Shape{4, 1, 27} : Shape{21, 27}, 0.7, 4);
        if (bits & 8) o.bias = Rng(5).normal(bits & 1 ? Shape{4, 1, 27} : Shape{2, 1, 21, 27}, 0, 1, DType::float64);
        if (bits & 16) o.dropout = 0.3;
        const std::optional<double> scale = bits & 16 ? std::optional(0.7) : std::nullopt;
        CAPTURE(own);
        CAPTURE(bits);
        const KeyLists lists = lists_of(pattern);
        manual_seed(9);
        const Rng drawn = default_rng();
        const AttentionResult expected =
            naive_attention(x, dense_options(x, pattern, o), o.dropout > 0 ? &drawn : nullptr, scale);
        const AttentionResult doubles = run_sparse(x, lists, o, DType::float64, scale);
        manual_seed(9);
        const AttentionResult floats = run_sparse(x, lists, o, DType::float32, scale);
        CHECK(attention_error(doubles, expected) < 1e-12);
        CHECK(attention_error(floats, expected) < 3e-6);
        const Evaluation no_dropout;
        const Tensor weights = weights_by([&](In v) { return sparse_attention(x.q, x.k, v, lists, o, scale); }, x.k);
        CHECK(worst(weights, expected.weights, 0, 1e-12) < 1);
        if (o.bias.defined()) {
          CHECK(worst(doubles.dbias, detail::sum_to(expected.dbias, o.bias.shape()), 0, 1e-12) < 1);
          CHECK(worst(floats.dbias, detail::sum_to(expected.dbias, o.bias.shape()), 0, 1e-5) < 1);
        }
      }
  });
}

TEST_CASE("sparse attention passes gradcheck in float64") {
  const AttentionSize s{2, 4, 2, 5, 7, 3, 4};
  const AttentionData x = random_attention(s);
  const KeyLists lists[] = {lists_of(random_mask({5, 7}, 0.5, 2)), lists_of(random_mask({2, 4, 5, 7}, 0.5, 2))};
  const AttentionCall cases[] = {{},
                                          {.key_lengths = Tensor::from<std::int32_t>({7, 2})},
                                          {.key_mask = random_mask({2, 7}, 0.6, 10)},
                                          {.mask = random_mask({4, 5, 7}, 0.6, 11)}};
  for (const KeyLists& l : lists)
    for (const AttentionCall& o : cases) {
      gradcheck([&](const std::vector<Tensor>& in) { return sparse_attention(in[0], in[1], in[2], l, o, 0.9); },
                {x.q, x.k, x.v});
      for (const Shape& shape : {Shape{7}, Shape{5, 1}, Shape{2, 1, 5, 7}, Shape{4, 1, 1}})
        gradcheck(
            [&](const std::vector<Tensor>& in) {
              AttentionCall with = o;
              with.bias = in[3];
              return sparse_attention(in[0], in[1], in[2], l, with);
            },
            {x.q, x.k, x.v, Rng(4).normal(shape, 0, 1, DType::float64)});
    }
}

TEST_CASE("sparse attention: what is masked or not listed may be NaN, rows without keys are zeros") {
  on_each_float_level([] {
    const AttentionSize s{2, 2, 1, 40, 40, 7, 9};
    const AttentionData x = random_attention(s);
    const KeyLists lists = lists_of(random_mask({40, 40}, 0.3, 2));
    AttentionData dirty = x;
    dirty.k = x.k.clone(), dirty.v = x.v.clone();
    dirty.k[1].slice(1, 25, 40).fill_(kNaN);
    dirty.v[1].slice(1, 25, 40).fill_(kNaN);
    Tensor alive = Tensor::ones({2, 40}, DType::bool8), pairs = Tensor::ones({2, 1, 40, 40}, DType::bool8);
    alive[1].slice(0, 25, 40).fill_(0);
    pairs[1].slice(2, 25, 40).fill_(0);
    for (const DType dtype : {DType::float32, DType::float64}) {
      const AttentionCall cases[] = {
          {.key_lengths = Tensor::from<std::int32_t>({40, 25})}, {.key_mask = alive}, {.mask = pairs}};
      for (const AttentionCall& o : cases)
        CHECK(same(run_sparse(dirty, lists, o, dtype), run_sparse(x, lists, o, dtype)));
      // Keys from 25 on are on no list.
      Tensor early = Tensor::zeros({40, 40}, DType::bool8);
      early.slice(1, 0, 25).fill_(1);
      CHECK(same(run_sparse(dirty, lists_of(early), {}, dtype), run_sparse(x, lists_of(early), {}, dtype)));
      // Queries 10 to 19 and their output gradients are NaN, and these queries have no visible keys.
      AttentionData lost{x.q.clone(), x.k, x.v, x.dout.clone()};
      lost.q.slice(2, 10, 20).fill_(kNaN);
      lost.dout.slice(2, 10, 20).fill_(kNaN);
      Tensor others = Tensor::ones({40, 40}, DType::bool8);
      others.slice(0, 10, 20).fill_(0);
      CHECK(same(run_sparse(lost, lists, {.mask = others}, dtype), run_sparse(x, lists, {.mask = others}, dtype)));
      // Rows 10 to 19 have no visible keys: zeros, and no gradients to or through them.
      Tensor some = Tensor::ones({40, 40}, DType::bool8), empty = some.clone();
      some.slice(0, 10, 20).fill_(0);
      empty.fill_(0);
      const AttentionResult masked = run_sparse(x, lists_of(empty), {}, dtype);
      for (const Tensor& t : {masked.out, masked.dq, masked.dk, masked.dv})
        for (const double value : t.to_vector<double>()) CHECK_UNARY(value == 0);
      AttentionData other = x;
      other.dout = x.dout.clone();
      other.dout.slice(2, 10, 20).fill_(1e3);
      const AttentionResult a = run_sparse(x, lists_of(some), {}, dtype),
                            b = run_sparse(other, lists_of(some), {}, dtype);
      for (const double value : a.out.slice(2, 10, 20).to_vector<double>()) CHECK_UNARY(value == 0);
      for (const double value : a.dq.slice(2, 10, 20).to_vector<double>()) CHECK_UNARY(value == 0);
      CHECK(same(a, b));
    }
  });
}

TEST_CASE("sparse attention: a bias of minus infinity forbids a pair, and a row of these is zeros") {
  on_each_float_level([] {
    const AttentionData x = random_attention({1, 2, 2, 30, 30, 7, 9});
    const KeyLists lists = lists_of(random_mask({30, 30}, 0.4, 2));
    Tensor bias = Tensor::zeros({30, 30}, DType::float64), mask = Tensor::ones({30, 30}, DType::bool8);
    for (const auto& part : {std::pair<int, Index>{0, 12}, {1, 3}}) {  // row 12 and column 3
      bias.select(part.first, part.second).fill_(-INFINITY);
      mask.select(part.first, part.second).fill_(0);
    }
    for (const DType dtype : {DType::float32, DType::float64}) {
      const AttentionResult biased = run_sparse(x, lists, {.bias = bias}, dtype);
      CHECK(attention_error(biased, run_sparse(x, lists, {.mask = mask}, dtype)) < 1e-6);
      for (const double value : biased.out.slice(2, 12, 13).to_vector<double>()) CHECK_UNARY(value == 0);
      for (const double value : biased.dbias.select(0, 12).to_vector<double>()) CHECK_UNARY(value == 0);
    }
  });
}

TEST_CASE("sparse attention handles scores of any spread") {
  on_each_float_level([] {
    const AttentionData x = random_attention({1, 2, 2, 30, 30, 8, 8}, 3, 300);
    const Tensor pattern = random_mask({30, 30}, 0.5, 2);
    const AttentionResult expected = naive_attention(x, dense_options(x, pattern, {}));
    CHECK(attention_error(run_sparse(x, lists_of(pattern), {}), expected) < 1e-9);
  });
}

TEST_CASE("sparse attention has the same bits at any number of threads, and however backward cuts its heads") {
  const AttentionData x = random_attention({2, 4, 2, 300, 300, 33, 40});
  const Tensor bias = Rng(3).normal({4, 1, 300}, 0, 1, DType::float64);
  const int before = threads();
  for (const bool own : {false, true}) {
    const KeyLists lists = lists_of(random_mask(own ? Shape{2, 4, 300, 300} : Shape{300, 300}, 0.2, 1));
    for (const Tensor& b : {Tensor(), bias}) {
      set_threads(1);
      const AttentionResult one = run_sparse(x, lists, {.bias = b}, DType::float32);
      for (const int n : {2, 3, 8}) {
        if (!is_taken(n, 8)) continue;
        set_threads(n);
        const AttentionResult many = run_sparse(x, lists, {.bias = b}, DType::float32);
        CHECK(same(many, one));
        if (b.defined()) CHECK(same_bits(many.dbias, one.dbias));
      }
    }
  }
  set_threads(before);
  // Four heads with 2.25 million pairs each, more than backward stores at once.
  const AttentionData large = random_attention({2, 2, 2, 1500, 1500, 2, 2});
  for (const bool own : {false, true}) {
    if (!is_taken(own, 2)) continue;
    const Tensor all = Tensor::ones(own ? Shape{2, 2, 1500, 1500} : Shape{1500, 1500}, DType::bool8);
    const AttentionResult together = run_sparse(large, lists_of(all), {}, DType::float32);
    for (const Index b : {0, 1}) {
      const auto part = [b](const Tensor& t) { return t.slice(0, b, b + 1).contiguous(); };
      const AttentionResult alone =
          run_sparse({part(large.q), part(large.k), part(large.v), part(large.dout)},
                     lists_of(own ? all.slice(0, 0, 1).contiguous() : all), {}, DType::float32);
      CHECK(same({part(together.out), part(together.dq), part(together.dk), part(together.dv), {}, {}}, alone));
    }
  }
}

TEST_CASE("sparse attention's memory grows with the pairs, not with the square of the length") {
  const auto bytes_at = [](Index n) {
    std::vector<std::int32_t> offsets = {0}, keys;
    for (Index i = 0; i < n; ++i) {
      for (Index j = std::max<Index>(0, i - 15); j <= i; ++j) keys.push_back(static_cast<std::int32_t>(j));
      offsets.push_back(static_cast<std::int32_t>(keys.size()));
    }
    const KeyLists lists{Tensor::from(offsets, {n + 1}), Tensor::from(keys, {static_cast<Index>(keys.size())})};
    const AttentionData x = random_attention({1, 1, 1, n, n, 16, 16});
    const Tensor q = x.q.to(DType::float32), k = x.k.to(DType::float32), v = x.v.to(DType::float32);
    const std::size_t start = memory_use().current;
    reset_peak_memory();
    Tape tape;
    const Tensor y = sparse_attention(tape.watch(q), tape.watch(k), tape.watch(v), lists);
    tape.backward(y, y.detach());
    return static_cast<double>(memory_use().peak - start);
  };
  const double at_1024 = bytes_at(1024), at_8192 = bytes_at(8192);
  CHECK(at_8192 < 9.5 * at_1024);
  CHECK(at_8192 < 8192.0 * 16 * 4 * 12);  // twelve tensors of the size of q
}

// Attention with vectors of relative positions, against attention on keys and values that have the vectors added pair
// by pair.
#include <heed/autograd/detail/relative_vectors.hpp>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/generic_attention.hpp>
#include <heed/autograd/reductions.hpp>
#include <heed/autograd/tape.hpp>

#include "tests/autograd/attention_reference.hpp"
#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;

namespace {

struct RelativeCase {
  AttentionSize size;
  Index clip;
  AttentionCall call = {};
};

Tensor table_of(Index clip, Index size, std::uint64_t seed) {
  return Rng(seed).normal({2 * clip + 1, size}, 0, 1, DType::float64);
}

// The result, term by term.
Tensor naive_relative(const AttentionData& x, const RelativeCase& c, const Tensor& a, const Tensor& b) {
  const AttentionSize& s = c.size;
  const Tensor allowed = allowed_pairs(x.q, x.k, c.call).expand({s.batch, s.heads, s.queries, s.keys});
  Tensor y = Tensor::zeros(x.dout.shape(), DType::float64);
  for (Index n = 0; n < s.batch * s.heads * s.queries; ++n) {
    const Index at_b = n / s.queries / s.heads, h = n / s.queries % s.heads, i = n % s.queries,
                g = h / (s.heads / s.kv_heads);
    const auto distance = [&](Index j) { return std::clamp(j - (i + s.keys - s.queries), -c.clip, c.clip) + c.clip; };
    std::vector<double> w(static_cast<std::size_t>(s.keys), 0.0);
    double sum = 0;
    for (Index j = 0; j < s.keys; ++j) {
      if (allowed.at({at_b, h, i, j}) == 0) continue;
      double score = 0;
      for (Index e = 0; e < s.width; ++e)
        score += x.q.at({at_b, h, i, e}) * (x.k.at({at_b, g, j, e}) + (a.defined() ? a.at({distance(j), e}) : 0));
      sum += w[static_cast<std::size_t>(j)] = std::exp(score / std::sqrt(static_cast<double>(s.width)));
    }
    for (Index j = 0; j < s.keys && sum > 0; ++j)
      for (Index e = 0; e < s.value_width; ++e)
        y.ptr<double>()[n * s.value_width + e] +=
            w[static_cast<std::size_t>(j)] / sum *
            (x.v.at({at_b, g, j, e}) + (b.defined() ? b.at({distance(j), e}) : 0));
  }
  return y;
}

void check_relative(const RelativeCase& c) {
  const AttentionData x = random_attention(c.size, 3);
  const Tensor a = table_of(c.clip, c.size.width, 4), b = table_of(c.clip, c.size.value_width, 5);
  CAPTURE(c.clip);
  CAPTURE(c.size.queries);
  CAPTURE(c.size.keys);
  for (const RelativeVectors& vectors : {RelativeVectors{a, b, {}}, {a, {}, {}}, {{}, b, {}}, {}}) {
    const Tensor expected = naive_relative(x, c, vectors.keys, vectors.values);
    CHECK(close(relative_attention(x.q, x.k, x.v, vectors, c.call), expected, 1e-12, 1e-12));
    const auto narrow = [](const Tensor& t) { return t.defined() ? t.to(DType::float32) : t; };
    CHECK(close(relative_attention(narrow(x.q), narrow(x.k), narrow(x.v),
                                   {narrow(vectors.keys), narrow(vectors.values), {}}, c.call),
                expected, 1e-5, 1e-5));
  }
  gradcheck(
      [&](const std::vector<Tensor>& in) {
        return relative_attention(in[0], in[1], in[2], {in[3], in[4], {}}, c.call);
      },
      {x.q, x.k, x.v, a, b}, {.min_samples = 20});
}

}  // namespace

TEST_CASE("relative attention equals attention with vectors added to each pair, and its gradients are right") {
  for (const Index clip : {0, 1, 3, 40})
    for (const bool causal : {false, true}) {
      check_relative({{1, 2, 2, 9, 9, 4, 3}, clip, {.causal = causal}});
      check_relative({{2, 2, 1, 4, 11, 5, 3}, clip, {.causal = causal}});
      check_relative({{1, 1, 1, 11, 4, 3, 2}, clip, {.causal = causal}});  // the first rows have no keys if causal
    }
  check_relative(
      {{2, 4, 2, 8, 8, 3, 2},
       2,
       {.causal = true, .key_lengths = Tensor::from<std::int32_t>({8, 5}), .mask = random_mask({2, 1, 8, 8}, 0.7, 4)}});
}

TEST_CASE("relative attention: queries at given positions, as in a decoder") {
  const AttentionData x = random_attention({2, 2, 2, 1, 9, 4, 3}, 6);
  const Tensor a = table_of(3, 4, 1), b = table_of(3, 3, 2);
  const Tensor y = relative_attention(x.q, x.k, x.v, {a, b, Tensor::from<std::int32_t>({8, 4})},
                                      {.key_lengths = Tensor::from<std::int32_t>({9, 5})});
  for (const Index row : {0, 1}) {
    const Index length = row == 0 ? 9 : 5;
    const auto part = [&](const Tensor& t) { return t.slice(0, row, row + 1).slice(2, 0, std::min(length, t.dim(2))); };
    CHECK(close(part(y), relative_attention(part(x.q), part(x.k), part(x.v), {a, b, {}}), 1e-13, 1e-13));
  }
}

TEST_CASE("sums by distance are the adjoint of copies by distance") {
  for (const Index clip : {0, 1, 4})
    for (const Index first : {-6, 0, 2, 9}) {
      const detail::Distances at{{first, first + 1}, 7, clip};
      const Tensor x = normal({2, 1, 3, 2 * clip + 1}, 1), w = normal({2, 1, 3, 7}, 2);
      CHECK(sum(detail::spread_by_distance(x, at) * w).item() ==
            doctest::Approx(sum(x * detail::sum_by_distance(w, at)).item()).epsilon(1e-12));
    }
}

TEST_CASE("relative attention: dropout that backward draws again") {
  const AttentionData x = random_attention({1, 2, 1, 5, 6, 4, 3}, 4);
  const auto dropped = [&](const std::vector<Tensor>& in) {
    manual_seed(3);
    return relative_attention(in[0], in[1], in[2], {in[3], in[4], {}}, {.dropout = 0.4});
  };
  gradcheck(dropped, {x.q, x.k, x.v, table_of(2, 4, 1), table_of(2, 3, 2)});
}

TEST_CASE("relative attention: errors") {
  const Tensor q = Tensor::ones({1, 1, 2, 3}), even = Tensor::ones({4, 3}), wide = Tensor::ones({3, 4}),
               three = Tensor::ones({3, 3}), five = Tensor::ones({5, 3});
  const auto with = [&](const RelativeVectors& vectors) {
    return [&, vectors] { relative_attention(q, q, q, vectors); };
  };
  const std::string ending = "they must be [2 clip + 1, size of q] and [2 clip + 1, size of v] of one dtype";
  check_errors({
      {ending, with({even, {}, {}})},
      {ending, with({{}, even, {}})},
      {ending, with({wide, {}, {}})},
      {ending, with({three, five, {}})},
      {ending, with({three.to(DType::float64), {}, {}})},
      {"relative_attention: positions is [2] int32; it must be [1] int32",
       with({three, {}, Tensor::from<std::int32_t>({1, 2})})},
      {"relative_attention: dropout is 2", [&] { relative_attention(q, q, q, {}, {.dropout = 2}); }},
  });
}

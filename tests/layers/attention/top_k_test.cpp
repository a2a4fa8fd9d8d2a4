// Top-k attention: its choice of keys, against sorting all scores.
#include <cmath>
#include <heed/layers/attention/sparse.hpp>
#include <limits>

#include "tests/core/levels.hpp"
#include "tests/layers/attention/sparse_support.hpp"
#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;
using heed::test::on_each_float_level;

TEST_CASE("top-k chooses the largest scores, of equal ones the lowest keys, on each level") {
  on_each_float_level([] {
    // Small integers: many scores are equal, and sums are exact in any order.
    int number = 0;
    for (const auto& length : kLengths) {
      Rng rng(4);
      const Index T = length[0], S = length[1];
      const auto integers = [&](const Shape& shape) { return rng.integers(shape, -1, 2).to(DType::float32); };
      const Tensor q = integers({2, 4, T, 3}), k = integers({2, 2, S, 3}), bias = integers({4, 1, S});
      const Tensor lengths = Tensor::from<std::int32_t>({static_cast<double>(S), static_cast<double>(S / 2)});
      const Tensor mask = mask_of(T, S, false, [](Index p, Index j, bool) { return (p + 2 * j) % 3 != 0; });
      for (const Index count : {1, 2, 5, 100})
        for (const AttentionCall& call : {AttentionCall{}, AttentionCall{.causal = true, .bias = bias},
                                          AttentionCall{.causal = true, .key_lengths = lengths, .mask = mask}}) {
          if (!is_taken(number++, 5)) continue;
          Tensor expected = Tensor::zeros({2, 4, T, S}, DType::bool8);
          for (Index row = 0; row < 8 * T; ++row) {
            const Index b = row / T / 4, h = row / T % 4, i = row % T;
            std::vector<std::pair<double, Index>> scores;  // minus the score, key
            for (Index j = 0; j < S; ++j) {
              if (call.causal && j > i + S - T) continue;
              if (call.key_lengths.defined() && j >= static_cast<Index>(lengths.at({b}))) continue;
              if (call.mask.defined() && mask.at({i, j}) == 0) continue;
              double s = 0;
              for (Index c = 0; c < 3; ++c) s += q.at({b, h, i, c}) * k.at({b, h / 2, j, c});
              scores.push_back({-(s * 0.5 + (call.bias.defined() ? bias.at({h, 0, j}) : 0)), j});
            }
            std::sort(scores.begin(), scores.end());
            for (std::size_t n = 0; n < std::min(scores.size(), static_cast<std::size_t>(count)); ++n)
              expected.ptr<bool>()[row * S + scores[n].second] = true;
          }
          CAPTURE(T);
          CAPTURE(S);
          CAPTURE(count);
          CHECK(same_bits(mask_of(TopKAttention(count, 0.5).lists(q, k, call), S), expected));
        }
    }
  });
}

TEST_CASE("top-k attention equals dense attention over the chosen keys, in blocks too, and NaN is not hidden") {
  for (const auto& length : kLengths)
    for (const bool causal : {false, true}) {
      const Heads x = random_heads(length[0], length[1]);
      const Tensor mask = mask_of(TopKAttention(3).lists(x.q, x.k, {.causal = causal}), length[1]);
      const auto dense = [&](In q, In k, In v) { return attention(q, k, v, {.mask = mask}); };
      const auto sparse = [&](In q, In k, In v) { return TopKAttention(3).apply(q, k, v, {.causal = causal}); };
      CHECK(distance(run(x, sparse), run(x, dense)) < 1e-12);
    }
  // More scores than are stored at once: the choice for a row does not depend on other rows.
  const Heads x = random_heads(700, 700);
  const KeyLists all = TopKAttention(9).lists(x.q, x.k, {});
  const KeyLists last = TopKAttention(9).lists(x.q.slice(2, 650, 700), x.k, {});
  CHECK(same_bits(mask_of(all, 700).slice(2, 650, 700).contiguous(), mask_of(last, 700)));
  Tensor bad = random_heads(8, 8).k;
  bad.select(2, 5).fill_(std::numeric_limits<double>::quiet_NaN());
  const Heads y = random_heads(8, 8);
  CHECK(std::isnan(TopKAttention(2).apply(y.q, bad, y.v, {}).at({0, 0, 0, 0})));
}

// The decode state of linear attention: constant size, and sums per row.
#include <heed/heed.hpp>

#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;

TEST_CASE("the state of linear attention keeps one size") {
  AttentionState state = LinearAttention{}.make_state();
  const auto items = [&] {
    Index n = 0;
    for (const NamedBuffer& b : named_buffers(state)) n += b.buffer->defined() ? b.buffer->numel() : 0;
    return n;
  };
  const Tensor x = Rng(1).normal({1, 2, 10, 4});
  state.apply(x, x, x);
  const Index after_ten = items();
  CHECK(after_ten == 1 + 2 * 4 * 4 + 2 * 4);  // a length per row, S and z
  for (int i = 0; i < 20; ++i) state.apply(x, x, x);
  CHECK(items() == after_ten);
  CHECK(state.length() == 210);
}

TEST_CASE("linear attention's state sums each row's own positions, without padding") {
  const NoTape guard;
  const Tensor q = normal({2, 1, 6, 3}, 1), k = normal({2, 1, 6, 3}, 2);
  Tensor v = normal({2, 1, 6, 2}, 3);
  v[1].slice(1, 2, 6).fill_(kNaN);
  AttentionState state = LinearAttention{{.feature_map = FeatureMap::identity, .signed_features = true}}.make_state();
  state.apply(q, k, v, {.key_lengths = Tensor::from<std::int32_t>({6, 2}, {2})});
  for (const NamedBuffer& b : named_buffers(state)) {
    if (b.name != "sums") continue;
    for (Index row = 0; row < 2; ++row)
      for (Index c = 0; c < 3; ++c)
        for (Index e = 0; e < 2; ++e) {
          double expected = 0;
          for (Index j = 0; j < (row == 0 ? 6 : 2); ++j) expected += k.at({row, 0, j, c}) * v.at({row, 0, j, e});
          CHECK(b.buffer->at({row, 0, c, e}) == doctest::Approx(expected).epsilon(1e-12));
        }
  }
  CHECK(contains(error_of([&] {
                   state.apply(q, k, v, {.bias = Tensor::zeros({1, 6}, DType::float64)});
                 }),
                 "this state has no scores of single pairs to add a bias to"));
}

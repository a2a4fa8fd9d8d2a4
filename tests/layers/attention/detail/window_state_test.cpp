// The decode state of window attention: positions that it drops, and positions that it keeps.
#include <heed/heed.hpp>

#include "tests/layers/attention/state_buffers.hpp"
#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;

TEST_CASE("the state of window attention keeps one size") {
  const Tensor x = Rng(1).normal({1, 2, 10, 4});
  AttentionState window = WindowAttention({.window = 8, .dilation = 2, .globals = {0, 30}}).make_state();
  Index max_rows = 0;
  for (int i = 0; i < 200; ++i) {
    window.apply(x, x, x);
    max_rows = std::max(max_rows, items_of(window, "keys") / 8);
  }
  CHECK(window.length() == 2000);
  CHECK(max_rows <= 2 * (14 + 2) + 64 + 10);
  AttentionState at_once = WindowAttention({.window = 8}).make_state();
  const Tensor long_text = Rng(2).normal({1, 2, 1000, 4});
  at_once.apply(long_text, long_text, long_text);
  CHECK(items_of(at_once, "keys") / 8 <= 2 * 7 + 64);  // keys visible only in the first step are dropped
}

TEST_CASE("the state of window attention keeps the keys of its shortest row, and each row sees its own window") {
  const NoTape guard;
  const WindowAttention mechanism({.window = 8, .dilation = 2, .globals = {0, 30}});
  AttentionState state = AttentionMechanism(mechanism).make_state(), shorter = state;
  const Tensor x = Rng(1).normal({2, 2, 400, 4}), few = x.slice(2, 0, 100);
  state.apply(few, few, few, {.key_lengths = Tensor::from<std::int32_t>({100, 40}, {2})});
  // Row 1 stays at position 40. Its window (from 40 - 14 on, and position 0) is kept, and the 60 positions of row 0
  // after it.
  for (Index t = 100; t < 400; ++t) {
    const Tensor next = x.slice(2, t, t + 1);
    state.apply(next, next, next, {.key_lengths = Tensor::from<std::int32_t>({1, 0}, {2})});
  }
  CHECK(state.lengths().to_vector<double>() == std::vector<double>{400, 40});
  // Then each row attends as its whole sequence would.
  const auto row = [&](Index b, Index from, Index to) { return x.slice(0, b, b + 1).slice(2, from, to); };
  const Tensor next = concatenate({row(0, 399, 400), row(1, 40, 41)}, 0);
  const Tensor long_row = concatenate({row(0, 0, 400), row(0, 399, 400)}, 2), short_row = row(1, 0, 41);
  const Tensor y = state.apply(next, next, next);
  const auto last = [&](const Tensor& all) {
    const Tensor whole = mechanism.apply(all, all, all, {.causal = true});
    return whole.slice(2, all.dim(2) - 1, all.dim(2));
  };
  CHECK(close(y.slice(0, 0, 1), last(long_row)));
  CHECK(close(y.slice(0, 1, 2), last(short_row)));
  // Without the short row, the next steps drop the keys that only the short row needed.
  AttentionState alone = state.rows(Tensor::from<std::int32_t>({0}, {1}));
  for (int i = 0; i < 80; ++i) alone.apply(row(0, i, i + 1), row(0, i, i + 1), row(0, i, i + 1));
  CHECK(items_of(alone, "keys") / 8 <= 2 * (14 + 2) + 64);
}

TEST_CASE("a window's decode state takes a bias when it has dropped old keys, with global positions too") {
  const Index n = 300;
  const auto draw = [](const Shape& shape, std::uint64_t seed) {
    return Rng(seed).normal(shape, 0, 1, DType::float64);
  };
  const Tensor q = draw({1, 2, n, 4}, 1), k = draw({1, 2, n, 4}, 2), v = draw({1, 2, n, 3}, 3),
               bias = draw({2, n, n}, 4);
  for (const std::vector<Index>& globals : {std::vector<Index>{}, std::vector<Index>{1, 3}}) {
    const AttentionMechanism m = WindowAttention({.window = 5, .globals = globals});
    const Tensor whole = m.apply(q, k, v, {.causal = true, .bias = bias});
    AttentionState state = m.make_state();
    double max_error = 0;
    for (Index t = 0; t < n; ++t) {
      const Tensor row = state.apply(q.slice(2, t, t + 1), k.slice(2, t, t + 1), v.slice(2, t, t + 1),
                                     {.bias = bias.slice(1, t, t + 1).slice(2, 0, t + 1)});
      max_error = std::max(max_error, worst(row, whole.slice(2, t, t + 1), 1e-12, 1e-12));
    }
    CHECK(max_error <= 1);
    for (const NamedBuffer& b : named_buffers(state))
      if (b.name == "keys") CHECK(b.buffer->dim(2) < 150);  // some keys were dropped
  }
}

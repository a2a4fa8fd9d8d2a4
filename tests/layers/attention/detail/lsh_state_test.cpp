// The decode state of LSH attention: its rings, bias and rotations.
#include <heed/heed.hpp>

#include "tests/layers/attention/state_buffers.hpp"
#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;

TEST_CASE("the state of LSH attention holds one ring per bucket") {
  const Tensor x = Rng(1).normal({1, 2, 10, 4});
  AttentionState lsh = LshAttention({.size = 4, .buckets = 4, .rounds = 2, .window = 5}).make_state();
  for (int i = 0; i < 20; ++i) lsh.apply(x, x, x);
  CHECK(items_of(lsh, "places") == 2 * 2 * 4 * 5);
  CHECK(items_of(lsh, "counts") == 2 * 2 * 4);
}

TEST_CASE("the decode state of LSH attention takes a bias, at once and in steps, with shared queries and keys too") {
  const Index n = 90;
  const Tensor q = normal({2, 4, n, 4}, 1), v = normal({2, 4, n, 3}, 3), bias = normal({4, n, n}, 4);
  for (const bool shared : {false, true}) {
    const AttentionMechanism m = LshAttention({.size = 4, .buckets = 4, .rounds = 2, .window = 6, .shared = shared});
    const Tensor k = shared ? q : normal({2, 4, n, 4}, 2);
    const Tensor whole = m.apply(q, k, v, {.causal = true, .bias = bias});
    CHECK_FALSE(close(whole, m.apply(q, k, v, {.causal = true}), 1e-2, 1e-2));
    for (const Index step : {1, 7, 90}) {
      AttentionState state = m.make_state();
      double max_error = 0;
      for (Index t = 0; t < n; t += step) {
        const Index end = std::min(n, t + step);
        const std::string refused = error_of([&] {  // an error changes nothing
          state.apply(q.slice(2, t, end), k.slice(2, t, end), v.slice(2, t, end), {.bias = normal({5, 91})});
        });
        CHECK(contains(refused, "lsh attention: bias is [5, 91] float64; it must broadcast to"));
        const Tensor rows = state.apply(q.slice(2, t, end), k.slice(2, t, end), v.slice(2, t, end),
                                        {.bias = bias.slice(1, t, end).slice(2, 0, end)});
        max_error = std::max(max_error, worst(rows, whole.slice(2, t, end), 1e-12, 1e-12));
      }
      CHECK(max_error <= 1);
    }
  }
}

TEST_CASE("lsh: values that are written into the mechanism do not reach a state that has begun") {
  const NoTape guard;
  Rng rng(1), same(1);
  const LshAttentionOptions options{.size = 8, .buckets = 4, .rounds = 1, .window = 2};
  MultiHeadAttention layer({.width = 16, .heads = 2}, rng, LshAttention(options));
  const MultiHeadAttention before({.width = 16, .heads = 2}, same, LshAttention(options));
  const Tensor x = rng.normal({2, 9, 16}), old = before(x, {.causal = true});
  AttentionState begun;
  layer.decode(x.slice(1, 0, 4), begun);
  named_buffers(layer).front().buffer->copy_(Rng(7).normal({1, 8, 2}));
  CHECK_FALSE(close(layer(x, {.causal = true}), old, 1e-2, 1e-2));
  CHECK(close(layer.decode(x.slice(1, 4, 9), begun), old.slice(1, 4, 9), 1e-4, 1e-5));
}

TEST_CASE("the state of LSH attention: padding enters no bucket, and refused rows change nothing") {
  const NoTape guard;
  const Tensor x = Rng(1).normal({2, 2, 30, 4}), few = x.slice(2, 0, 20);
  AttentionState state = LshAttention({.size = 4, .buckets = 4, .rounds = 2, .window = 5}).make_state();
  state.apply(few, few, few, {.key_lengths = Tensor::from<std::int32_t>({20, 7}, {2})});
  for (const NamedBuffer& b : named_buffers(state))
    if (b.name == "counts") {
      CHECK(sum((*b.buffer)[0].to(DType::float64)).item() == 2 * 2 * 20);  // each position once per head and round
      CHECK(sum((*b.buffer)[1].to(DType::float64)).item() == 2 * 2 * 7);
    }
  AttentionState before = state;
  CHECK(contains(error_of([&] {
                   state.apply(few, few, few, {.key_lengths = Tensor::from<std::int32_t>({20, 21}, {2})});
                 }),
                 "KeyValueState: key_lengths[1] is 21; it must be from 0 to the number of new positions, 20"));
  const Tensor next = x.slice(2, 20, 21);
  CHECK(same_bits(state.apply(next, next, next), before.apply(next, next, next)));
}

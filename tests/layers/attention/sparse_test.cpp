// Patterns against dense attention with the mask of their definition. Also properties of all sparse mechanisms: states,
// weights, masks, threads.
#include <cmath>
#include <heed/autograd/detail/key_lists.hpp>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/shape_ops.hpp>
#include <heed/core/parallel.hpp>
#include <heed/layers/attention/multi_head.hpp>
#include <heed/layers/attention/sparse.hpp>
#include <map>
#include <set>

#include "tests/layers/attention/sparse_support.hpp"
#include "tests/layers/attention/state_buffers.hpp"

using namespace heed;
using namespace heed::test;

namespace {

// Compares a pattern with dense attention and its mask, forward and backward.
template <class Mechanism>
void check_pattern(const Mechanism& mechanism, const Sees& sees, std::optional<double> scale = {}) {
  const AttentionMechanism erased(mechanism);
  for (const auto& length : kLengths)
    for (const bool causal : {false, true}) {
      CAPTURE(length[0]);
      CAPTURE(length[1]);
      CAPTURE(causal);
      const Tensor mask = mask_of(length[0], length[1], causal, sees);
      CHECK(same_bits(mask_of(mechanism.lists(length[0], length[1], causal), length[1]), mask));
      const Heads x = random_heads(length[0], length[1]);
      const auto dense = [&](In q, In k, In v) { return attention(q, k, v, {.mask = mask}, scale); };
      const auto sparse = [&](In q, In k, In v) { return erased.apply(q, k, v, {.causal = causal}); };
      CHECK(distance(run(x, sparse), run(x, dense)) < 1e-12);
      CHECK(worst(erased.weights(x.q, x.k, {.causal = causal}),
                  weights_by([&](In v) { return dense(x.q, x.k, v); }, x.k), 0, 1e-13) < 1);
    }
}

Index pairs(const KeyLists& lists) { return lists.keys.numel(); }
Index floor_mod(Index x, Index n) { return x - n * static_cast<Index>(std::floor(double(x) / double(n))); }
Index floor_div(Index x, Index n) { return static_cast<Index>(std::floor(double(x) / double(n))); }

struct Sorts {  // at least one of each mechanism
  static std::vector<AttentionMechanism> all() {
    std::vector<AttentionMechanism> list;
    list.emplace_back(WindowAttention({.window = 5}));
    list.emplace_back(WindowAttention({.window = 3, .dilation = 4, .globals = {0, 17, 90}}));
    list.emplace_back(StridedAttention({.stride = 7}));
    list.emplace_back(FixedAttention({.block = 8, .summary = 2}));
    list.emplace_back(TopKAttention(6));
    list.emplace_back(LshAttention({.size = 6, .buckets = 6, .rounds = 3, .window = 4, .seed = 3}));
    return list;
  }
};

}  // namespace

TEST_CASE("window attention equals dense attention with its mask") {
  for (const Index window : {1, 2, 3, 8, 100})
    for (const Index dilation : {1, 3})
      for (const std::vector<Index>& globals : {std::vector<Index>{}, {0}, {7, 2, 7, 200}, {3, 4, 5, 11}}) {
        CAPTURE(window);
        CAPTURE(dilation);
        const std::set<Index> global(globals.begin(), globals.end());
        check_pattern(
            WindowAttention({.window = window, .dilation = dilation, .globals = globals}),
            [&](Index p, Index j, bool causal) {
              const bool far = causal ? j <= p - window * dilation || j > p : std::abs(p - j) > window / 2 * dilation;
              return (!far && floor_mod(p - j, dilation) == 0) || global.count(j) == 1 || global.count(p) == 1;
            });
      }
  check_pattern(
      WindowAttention({.window = 4, .scale = 0.3}),
      [](Index p, Index j, bool causal) { return causal ? p - 4 < j : std::abs(p - j) <= 2; }, 0.3);
}

TEST_CASE("strided and fixed attention equal dense attention with their masks") {
  for (const Index l : {1, 2, 5, 8, 100}) {
    CAPTURE(l);
    check_pattern(StridedAttention({.stride = l}),
                  [&](Index p, Index j, bool) { return std::abs(p - j) < l || floor_mod(p - j, l) == 0; });
    for (const Index c : {Index{1}, (l + 1) / 2, l})
      check_pattern(FixedAttention({.block = l, .summary = c}),
                    [&](Index p, Index j, bool) { return floor_div(j, l) == floor_div(p, l) || j % l >= l - c; });
  }
}

TEST_CASE("patterns have the documented number of pairs") {
  for (const Index n : {1024, 4096, 16384}) {
    CAPTURE(n);
    CHECK(pairs(WindowAttention({.window = 16}).lists(n, n, true)) == 16 * n - 16 * 15 / 2);
    CHECK(pairs(WindowAttention({.window = 16}).lists(n, n, false)) == 17 * n - 2 * (8 * 9 / 2));
    CHECK(pairs(WindowAttention({.window = 16, .dilation = 4}).lists(n, n, true)) <= 16 * n);
    CHECK(pairs(WindowAttention({.window = 16, .globals = {0, 5}}).lists(n, n, true)) <= 18 * n + 2 * 6);
    const Index root = static_cast<Index>(std::sqrt(double(n)));
    CHECK(pairs(StridedAttention({.stride = root}).lists(n, n, true)) <= 2 * n * root);
    CHECK(pairs(StridedAttention({.stride = root}).lists(n, n, false)) <= 3 * n * root);
    CHECK(pairs(FixedAttention({.block = root}).lists(n, n, true)) <= 2 * n * root);
  }
}

TEST_CASE("sparse mechanisms: later tokens change nothing earlier, not one bit, and padding may be NaN") {
  for (const AttentionMechanism& m : Sorts::all()) {
    CAPTURE(m.name());
    const Heads x = random_heads(120, 120);
    for (const DType dtype : {DType::float32, DType::float64}) {
      const auto as = [&](const Tensor& t) { return t.to(dtype); };
      const Tensor before = m.apply(as(x.q), as(x.k), as(x.v), {.causal = true});
      Heads later{x.q.clone(), x.k.clone(), x.v.clone()};
      later.q.slice(2, 80, 120).fill_(-2);
      later.k.slice(2, 80, 120).fill_(100);
      later.v.slice(2, 80, 120).fill_(kNaN);
      const Tensor after = m.apply(as(later.q), as(later.k), as(later.v), {.causal = true});
      CHECK(same_bits(after.slice(2, 0, 80).contiguous(), before.slice(2, 0, 80).contiguous()));
      for (const bool causal : {false, true}) {
        Heads dirty{x.q, x.k.clone(), x.v.clone()};
        dirty.k[1].slice(1, 70, 120).fill_(kNaN);
        dirty.v[1].slice(1, 70, 120).fill_(kNaN);
        const AttentionCall call{.causal = causal, .key_lengths = Tensor::from<std::int32_t>({120, 70})};
        CHECK(
            same_bits(m.apply(as(dirty.q), as(dirty.k), as(dirty.v), call), m.apply(as(x.q), as(x.k), as(x.v), call)));
        const AttentionCall none{.causal = causal, .key_lengths = Tensor::from<std::int32_t>({120, 0})};
        for (const double value : m.apply(x.q, x.k, x.v, none)[1].to_vector<double>()) CHECK_UNARY(value == 0);
      }
    }
  }
}

TEST_CASE("sparse mechanisms: one call equals chunks and single tokens, and states are saved and resumed") {
  for (const AttentionMechanism& m : Sorts::all()) {
    CAPTURE(m.name());
    const Heads x = random_heads(150, 150);
    const auto part = [](const Tensor& t, Index from, Index to) { return t.slice(2, from, to); };
    const Tensor whole = m.apply(x.q, x.k, x.v, {.causal = true});
    for (const Index step : {1, 7, 64, 149, 150}) {
      CAPTURE(step);
      AttentionState state = m.make_state();
      std::vector<Tensor> parts;
      for (Index i = 0; i < 150; i += step) {
        const Index end = std::min<Index>(150, i + step);
        if (i >= 70 && i < 70 + step) {  // continues in another state
          AttentionState resumed = m.make_state();
          std::map<std::string, Tensor> saved;
          for (const NamedBuffer& b : named_buffers(state)) saved[b.name] = b.buffer->clone();
          for (const NamedBuffer& b : named_buffers(resumed)) *b.buffer = saved.at(b.name);
          state = std::move(resumed);
        }
        parts.push_back(state.apply(part(x.q, i, end), part(x.k, i, end), part(x.v, i, end)));
        CHECK(state.length() == end);
      }
      CHECK(close(concatenate(parts, 2), whole, 0, 1e-12));
    }
  }
}

TEST_CASE("sparse mechanisms: weights reproduce the output, and the bits do not depend on the threads") {
  const int before = threads();
  for (const AttentionMechanism& m : Sorts::all()) {
    CAPTURE(m.name());
    const Heads x = random_heads(50, 50);
    const Tensor bias = Rng(3).normal({4, 50, 50}, 0, 1, DType::float64);
    for (const AttentionCall& call : {AttentionCall{}, AttentionCall{.causal = true, .bias = bias}}) {
      const Tensor w = m.weights(x.q, x.k, call), y = m.apply(x.q, x.k, x.v, call);
      for (Index h = 0; h < 4; ++h)
        for (Index i = 0; i < 50; ++i) {
          double mixed = 0, total = 0;
          for (Index j = 0; j < 50; ++j)
            mixed += w.at({1, h, i, j}) * x.v.at({1, h / 2, j, 2}), total += w.at({1, h, i, j});
          CHECK(std::fabs(mixed - y.at({1, h, i, 2})) < 1e-12);
          CHECK(std::fabs(total - 1) < 1e-12);
        }
      set_threads(1);
      const std::vector<Tensor> one = run(x, [&](In q, In k, In v) { return m.apply(q, k, v, call); });
      for (const int n : {2, 3, 8}) {
        set_threads(n);
        const std::vector<Tensor> many = run(x, [&](In q, In k, In v) { return m.apply(q, k, v, call); });
        for (std::size_t i = 0; i < one.size(); ++i) CHECK(same_bits(many[i], one[i]));
      }
      set_threads(before);
    }
  }
}

TEST_CASE("sparse mechanisms drop the weights that dense attention drops") {
  for (const AttentionMechanism& m : Sorts::all()) {
    CAPTURE(m.name());
    const Heads x = random_heads(50, 50);
    const Tensor mask = gt(m.weights(x.q, x.k, {.causal = true}), 0);
    const auto dense = [&](In q, In k, In v) {
      manual_seed(3);
      return attention(q, k, v, {.mask = mask, .dropout = 0.4});
    };
    const auto sparse = [&](In q, In k, In v) {
      manual_seed(3);
      return m.apply(q, k, v, {.causal = true, .dropout = 0.4});
    };
    CHECK(distance(run(x, sparse), run(x, dense)) < 1e-12);
  }
}

TEST_CASE("sparse mechanisms train and decode in a layer") {
  for (AttentionMechanism& m : Sorts::all()) {
    CAPTURE(m.name());
    Rng rng(2);
    const Tensor x = rng.normal({2, 100, 24});
    MultiHeadAttention layer({.width = 24, .heads = 4, .kv_heads = 2}, rng, std::move(m));
    Tape tape;
    const Tensor y = layer(x, {.causal = true});
    tape.backward(y, y.detach());
    for (Parameter* p : parameters(layer)) CHECK(p->grad().defined());
    AttentionState state;
    std::vector<Tensor> parts;
    const NoTape guard;
    for (Index i = 0; i < 100; i += 5) parts.push_back(layer.decode(x.slice(1, i, i + 5), state));
    CHECK(close(concatenate(parts, 1), y, 0, 1e-5));
  }
}

TEST_CASE("sparse mechanisms: errors name the wrong argument") {
  const Tensor x = Tensor::ones({2, 2, 3, 4}), wide = Tensor::ones({2, 2, 3, 6});
  AttentionState window = WindowAttention({.window = 2}).make_state(),
                 lsh = LshAttention({.size = 4, .buckets = 4}).make_state(),
                 shared = LshAttention({.size = 4, .buckets = 4, .shared = true}).make_state();
  window.apply(x, x, x);
  lsh.apply(x, x, x);
  check_errors({
      {"window attention: window is 0 and dilation is 1; both must be 1 or more", [] { WindowAttention({}); }},
      {"dilation is 0", [] { WindowAttention({.window = 3, .dilation = 0}); }},
      {"a global position is -1; it must be 0 or more",
       [] {
         WindowAttention({.window = 3, .globals = {4, -1}});
       }},
      {"strided attention: stride is 0; it must be 1 or more", [] { StridedAttention({}); }},
      {"fixed attention: block is 0 and summary is 1; summary must be 1 or more and at most block",
       [] { FixedAttention({}); }},
      {"summary is 5", [] { FixedAttention({.block = 4, .summary = 5}); }},
      {"top-k attention: k is 0; it must be 1 or more", [] { TopKAttention(0); }},
      {"lsh attention: size is 0, rounds is 4 and window is 32; each must be 1 or more", [] { LshAttention({}); }},
      {"buckets is 3; it must be even, 2 or more", [] { LshAttention({.size = 4, .buckets = 3}); }},
      {"lsh attention: x is [2, 2, 3, 6] float32; it must be [batch, heads, positions, 4]",
       [&] { LshAttention({.size = 4}).apply(wide, wide, wide, {}); }},
      {"but the state holds", [&] { window.apply(wide, wide, wide); }},
      {"lsh attention: bias is [4, 5] float32",
       [&] {
         lsh.apply(x, x, x, {.bias = Tensor::zeros({4, 5})});
       }},
      {"lsh attention: q is [2, 2, 3, 4] float32 and k is [2, 1, 3, 4] float32; they must have the same number of "
       "heads, as queries and keys are shared",
       [&] { shared.apply(x, x.slice(1, 0, 1), x.slice(1, 0, 1)); }},
      {"lsh attention: q is [2, 2, 3, 6] float32; its last axis must be 4", [&] { lsh.apply(wide, wide, wide); }},
      {"there are 2147483648 pairs of queries and keys; there must be fewer than 2^31",
       [] { detail::checked_pairs(std::size_t{1} << 31); }},
      {"but the cache holds", [&] { lsh.apply(x, x, wide); }},
  });
  CHECK(window.length() == 3);  // errors changed nothing
  CHECK(lsh.length() == 3);
  CHECK(window.apply(x, x, x).shape() == x.shape());
  CHECK(lsh.apply(x, x, x).shape() == x.shape());
  for (const AttentionMechanism& m : Sorts::all()) {
    CHECK(m.capabilities().discrete == (m.name() == "top-k" || m.name() == "lsh"));
    CHECK(m.apply(Tensor::ones({1, 2, 0, 6}), Tensor::ones({1, 1, 0, 6}), Tensor::ones({1, 1, 0, 6}), {}).numel() == 0);
    const Tensor none = m.apply(Tensor::ones({1, 2, 3, 6}), Tensor::ones({1, 1, 0, 6}), Tensor::ones({1, 1, 0, 6}), {});
    for (const double value : none.to_vector<double>()) CHECK_UNARY(value == 0);
  }
}

// ---- The decode state of window attention ----

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

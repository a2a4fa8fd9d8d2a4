// LSH attention against its definition, round by round.
#include <cmath>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/reductions.hpp>
#include <heed/autograd/tape.hpp>
#include <heed/layers/attention/sparse.hpp>
#include <map>
#include <numeric>

#include "tests/core/levels.hpp"
#include "tests/layers/attention/sparse_support.hpp"
#include "tests/layers/attention/state_buffers.hpp"
#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;
using heed::test::on_each_float_level;

namespace {

Tensor lsh_attention(In q, In k, In v, const LshAttentionOptions& options, const AttentionCall& call = {}) {
  return AttentionMechanism(LshAttention(options)).apply(q, k, v, call);
}

// Each round with its own softmax, corrected for keys that several rounds share; then the rounds weighted by their
// sums.
Tensor naive_lsh(const Heads& x, const LshAttention& lsh, const AttentionCall& call) {
  const LshAttentionOptions& o = lsh.options();
  const Index B = x.q.dim(0), H = x.q.dim(1), T = x.q.dim(2), D = x.q.dim(3), Hk = x.k.dim(1), S = x.k.dim(2),
              V = x.v.dim(3), half = o.buckets / 2;
  Tensor y = Tensor::zeros({B, H, T, V}, DType::float64);
  const auto bucket = [&](const Tensor& t, Index b, Index h, Index i, Index r) {
    std::vector<double> e(static_cast<std::size_t>(o.buckets));
    for (Index m = 0; m < half; ++m) {
      double s = 0;
      for (Index c = 0; c < D; ++c) s += t.at({b, h, i, c}) * lsh.rotations().at({r, c, m});
      e[static_cast<std::size_t>(m)] = s, e[static_cast<std::size_t>(half + m)] = -s;
    }
    return std::max_element(e.begin(), e.end()) - e.begin();
  };
  for (Index row = 0; row < B * H * T; ++row) {
    const Index b = row / T / H, h = row / T % H, i = row % T, g = h / (H / Hk), p = i + S - T;
    const auto allowed = [&](Index j) {
      return j >= 0 && (!call.causal || j <= p) &&
             (!call.key_lengths.defined() || j < static_cast<Index>(call.key_lengths.at({b}))) &&
             (!call.mask.defined() || call.mask.at({i, j}) != 0);
    };
    std::vector<std::vector<Index>> sets(static_cast<std::size_t>(o.rounds));
    std::map<Index, int> rounds_with;
    for (Index r = 0; r < o.rounds; ++r) {
      std::vector<std::pair<Index, Index>> near;  // distance, key
      for (Index j = 0; j < S; ++j)
        if (j != p && (!call.causal || j < p) && allowed(j) && bucket(x.q, b, h, i, r) == bucket(x.k, b, g, j, r))
          near.push_back({std::abs(p - j), j});
      std::sort(near.begin(), near.end());
      for (std::size_t n = 0; n < std::min(near.size(), static_cast<std::size_t>(o.window)); ++n) {
        sets[static_cast<std::size_t>(r)].push_back(near[n].second);
        ++rounds_with[near[n].second];
      }
    }
    if (rounds_with.empty() && allowed(p)) sets[0] = {p}, rounds_with[p] = 1;
    std::vector<double> z;
    std::vector<std::vector<double>> out;
    for (const std::vector<Index>& set : sets) {
      if (set.empty()) continue;
      std::vector<double> e, sum(static_cast<std::size_t>(V));
      for (const Index j : set) {
        double s = 0;
        for (Index c = 0; c < D; ++c) s += x.q.at({b, h, i, c}) * x.k.at({b, g, j, c});
        e.push_back(std::exp(s / std::sqrt(double(D)) - std::log(double(rounds_with[j]))));
      }
      const double total = std::accumulate(e.begin(), e.end(), 0.0);
      for (std::size_t n = 0; n < set.size(); ++n)
        for (Index c = 0; c < V; ++c) sum[static_cast<std::size_t>(c)] += e[n] / total * x.v.at({b, g, set[n], c});
      z.push_back(std::log(total));
      out.push_back(sum);
    }
    double all = 0;
    for (const double r : z) all += std::exp(r);
    for (std::size_t r = 0; r < z.size(); ++r)
      for (Index c = 0; c < V; ++c)
        y.ptr<double>()[row * V + c] += std::exp(z[r]) / all * out[r][static_cast<std::size_t>(c)];
  }
  return y;
}

}  // namespace

TEST_CASE("LSH attention equals its rounds, combined one by one, on each level") {
  on_each_float_level([] {
    int number = 0;
    for (const auto& length : {std::pair<Index, Index>{1, 1}, {25, 25}, {6, 15}, {15, 6}})
      for (const LshAttentionOptions& o :
           {LshAttentionOptions{.size = 6, .buckets = 4, .rounds = 3, .window = 3, .seed = 5},
            LshAttentionOptions{.size = 6, .buckets = 16, .rounds = 1, .window = 2},
            LshAttentionOptions{.size = 6, .buckets = 2, .rounds = 2, .window = 50}}) {
        const Index T = length.first, S = length.second;
        const Tensor lengths = Tensor::from<std::int32_t>({static_cast<double>(S), static_cast<double>(S / 2)});
        const Tensor mask = mask_of(T, S, false, [](Index p, Index j, bool) { return (p + 2 * j) % 3 != 0; });
        for (const AttentionCall& call :
             {AttentionCall{}, AttentionCall{.causal = true}, AttentionCall{.key_lengths = lengths},
              AttentionCall{.causal = true, .key_lengths = lengths, .mask = mask}}) {
          if (!is_taken(number++, 3)) continue;
          CAPTURE(T);
          CAPTURE(S);
          CAPTURE(call.causal);
          CAPTURE(o.buckets);
          const Heads x = random_heads(T, S);
          const LshAttention lsh(o);
          const Tensor expected = naive_lsh(x, lsh, call);
          CHECK(worst(AttentionMechanism(lsh).apply(x.q, x.k, x.v, call), expected, 0, 1e-12) < 1);
          const auto f = [](const Tensor& t) { return t.to(DType::float32); };
          CHECK(worst(lsh_attention(f(x.q), f(x.k), f(x.v), o, call), expected, 0, 1e-5) < 1);
          const Tensor chosen = mask_of(lsh.lists(x.q, x.k, call), S);
          const auto dense = [&](In q, In k, In v) { return attention(q, k, v, {.mask = chosen}); };
          const auto sparse = [&](In q, In k, In v) { return lsh_attention(q, k, v, o, call); };
          CHECK(distance(run(x, sparse), run(x, dense)) < 1e-12);
        }
      }
  });
}

TEST_CASE("LSH attention: rotations depend on the seed and are a buffer, shared keys are normalized queries") {
  const LshAttentionOptions o{.size = 6, .buckets = 4, .rounds = 2, .window = 3, .shared = true, .seed = 7};
  LshAttention lsh(o), again(o), other({.size = 6, .buckets = 4, .rounds = 2, .window = 3, .seed = 8});
  CHECK(same_bits(lsh.rotations(), again.rotations()));
  CHECK(!same_bits(lsh.rotations(), other.rotations()));
  AttentionMechanism mechanism(lsh);
  CHECK(named_buffers(mechanism).size() == 1);
  CHECK(named_buffers(mechanism)[0].name == "rotations");
  const Heads x = random_heads(20, 20, 2, 2);
  const Tensor keys = lsh.keys_of(x.q, x.k);
  CHECK(std::fabs(sum(square(keys), -1).at({0, 0, 3}) - 1) < 1e-12);
  const Tensor chosen = mask_of(lsh.lists(x.q, x.k, {.causal = true}), 20);
  CHECK(
      close(lsh_attention(x.q, x.k, x.v, o, {.causal = true}), attention(x.q, keys, x.v, {.mask = chosen}), 0, 1e-12));
  gradcheck([&](const std::vector<Tensor>& in) { return lsh_attention(in[0], x.k, in[1], o, {.causal = true}); },
            {x.q.slice(2, 0, 20), x.v});
  Tensor zero = x.q.clone();
  zero.select(2, 4).fill_(0);
  for (const Tensor& t : run({zero, x.k, x.v}, [&](In q, In k, In v) { return lsh_attention(q, k, v, o); }))
    if (t.defined())
      for (const double value : t.to_vector<double>()) CHECK_UNARY(std::isfinite(value));
  CHECK(contains(error_of([&] { lsh_attention(x.q.slice(2, 0, 5), x.k, x.v, o); }), "queries and keys are shared"));
}

// ---- The decode state ----

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

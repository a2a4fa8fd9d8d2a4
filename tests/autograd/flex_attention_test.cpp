// flex_attention with user-defined score functions and block masks: values and gradients against plain loops and
// PyTorch (tests/reference/flex_torch.py), threads, memory. Errors: flex_attention_errors_test.cpp. Above 400 lines,
// because score functions, masks and sinks belong to one op.
#include <heed/autograd/flex_attention.hpp>
#include <heed/autograd/matmul.hpp>
#include <heed/autograd/tape.hpp>
#include <heed/core/memory.hpp>
#include <heed/core/parallel.hpp>
#include <heed/heed.hpp>

#include "tests/autograd/attention_reference.hpp"
#include "tests/core/levels.hpp"
#include "tests/reference/stored.hpp"
#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;

namespace {

// A score function that uses all its arguments, its derivative, and a mask that depends on all indices.
const auto wave = [](auto s, int b, int h, int q, int k) {
  const auto bent = q > k ? 2 * tanh(s / 3) : s * s / 8 - s;
  return bent + 0.25 * sin(s + b) - 0.1 * (h + 1) * abs(q - k) / 8;
};
double wave_value(double s, Index b, Index h, Index q, Index k) {
  const double bent = q > k ? 2 * std::tanh(s / 3) : s * s / 8 - s;
  return bent + 0.25 * std::sin(s + static_cast<double>(b)) -
         0.1 * static_cast<double>(h + 1) * static_cast<double>(std::abs(q - k)) / 8;
}
double wave_slope(double s, Index b, Index, Index q, Index k) {
  const double bent = q > k ? 2.0 / 3 * (1 - std::pow(std::tanh(s / 3), 2)) : s / 4 - 1;
  return bent + 0.25 * std::cos(s + static_cast<double>(b));
}
const auto spots = [](int b, int h, int q, int k) {
  return (q / 40 + k / 50 + b + h) % 3 != 1 && (q * 7 + k) % 5 != 0;
};
const auto near = [](int, int, int q, int k) { return q - k < 50 && k - q < 50; };

struct FlexResult {
  AttentionResult a;
  std::vector<Tensor> parameters;  // gradients of parameters
};

// Runs flex_attention forward and backward. The tape watches the parameters of the score_mod and the sinks.
FlexResult run_flex(const AttentionData& x, FlexAttentionOptions o, AttentionCall call, DType dtype = DType::float64) {
  Tape tape;
  const Tensor q = tape.watch(x.q.to(dtype)), k = tape.watch(x.k.to(dtype)), v = tape.watch(x.v.to(dtype));
  if (call.bias.defined()) call.bias = tape.watch(call.bias.to(dtype));
  if (o.sinks.defined()) o.sinks = tape.watch(o.sinks.to(dtype));
  std::vector<Tensor> parameters;
  for (const Tensor& p : o.score_mod.parameters()) parameters.push_back(tape.watch(p.to(dtype)));
  o.score_mod = o.score_mod.with(parameters);
  FlexResult r;
  r.a.out = flex_attention(q, k, v, o, call);
  tape.backward(r.a.out, x.dout.to(dtype));
  r.a.out = r.a.out.detach();
  r.a.dq = tape.grad(q), r.a.dk = tape.grad(k), r.a.dv = tape.grad(v);
  if (call.bias.defined()) r.a.dbias = tape.grad(call.bias);
  if (o.sinks.defined()) r.a.dsinks = tape.grad(o.sinks);
  for (const Tensor& p : parameters) r.parameters.push_back(tape.grad(p));
  return r;
}

BlockMask mask_of(const MaskMod& mask, const AttentionSize& s, bool broadcast = false) {
  return create_block_mask(mask, broadcast ? 1 : s.batch, broadcast ? 1 : s.heads, s.queries, s.keys);
}

}  // namespace

TEST_CASE("flex_attention with a function and a mask equals the naive loops at lengths around blocks, on each level") {
  for (const Index n : {1, 2, 31, 32, 33, 63, 64, 65, 130, 300}) {
    if (kSanitized && (n == 2 || n == 31 || n == 32 || n == 64)) continue;
    for (const Index m : {n, Index{70}, Index{600}}) {
      if (m == 600 && n != 1 && n != 33 && n != 130) continue;  // many keys only for few lengths
      const AttentionSize s{2, 2, 1, n, m, 8, 12};
      const AttentionData x = random_attention(s, 3);
      for (const bool causal : {false, true})
        for (const bool masked : {false, true}) {
          CAPTURE(n);
          CAPTURE(m);
          CAPTURE(causal);
          CAPTURE(masked);
          const AttentionCall call{.causal = causal};
          NaiveRules rules{wave_value, wave_slope};
          FlexAttentionOptions o{.score_mod = wave};
          if (masked) rules.mask = spots, o.block_mask = mask_of(spots, s);
          const AttentionResult expected = naive_attention(x, call, nullptr, {}, rules);
          on_each_float_level([&] {
            CHECK(attention_error(run_flex(x, o, call).a, expected) < 1e-12);
            CHECK(attention_error(run_flex(x, o, call, DType::float32).a, expected) < 5e-6);
            CHECK(worst(flex_attention(x.q, x.k, x.v, o, call), expected.out, 0, 1e-12) < 1);  // n = 1: decoding
          });
        }
    }
  }
}

TEST_CASE("flex_attention takes every mask, a bias, sinks and dropout with its block mask, on each level") {
  const AttentionSize s{2, 4, 2, 70, 135, 8, 12};
  const AttentionData x = random_attention(s, 5);
  for (int bits = 0; bits < 128; ++bits) {
    if (!test::is_taken(bits, 5)) continue;
    AttentionCall call;
    if (bits & 1) call.causal = true;
    if (bits & 2) call.key_lengths = Tensor::from<std::int32_t>({132, 5});
    if (bits & 4) call.key_mask = random_mask({s.batch, s.keys}, 0.6, 3);
    if (bits & 8) call.mask = random_mask({s.heads, 1, s.keys}, 0.5, 4);
    if (bits & 16) {
      call.bias = Rng(5).normal({s.heads, s.queries, s.keys}, 0, 1, DType::float64);
      for (Index i = 0; i < call.bias.numel(); i += 7) call.bias.ptr<double>()[i] = -kInf;
    }
    FlexAttentionOptions o{.score_mod = wave, .scale = 0.3};
    NaiveRules rules{wave_value, wave_slope};
    if (bits & 32) o.block_mask = mask_of(near, s, true), rules.mask = near;
    if (bits & 64) o.sinks = Tensor::from({0.5, -1, 30, -30}).to(DType::float64), rules.sinks = {0.5, -1, 30, -30};
    if (bits % 3 == 0) call.dropout = 0.3;
    CAPTURE(bits);
    manual_seed(11);
    const Rng before = default_rng();
    const AttentionResult expected = naive_attention(x, call, call.dropout > 0 ? &before : nullptr, 0.3, rules);
    on_each_float_level([&] {
      default_rng() = before;
      const FlexResult doubles = run_flex(x, o, call);
      CHECK(attention_error(doubles.a, expected) < 1e-12);
      default_rng() = before;
      CHECK(attention_error(run_flex(x, o, call, DType::float32).a, expected) < 5e-6);
      if (call.bias.defined())
        CHECK(worst(doubles.a.dbias, detail::sum_to(expected.dbias, call.bias.shape()), 0, 1e-12) < 1);
      if (o.sinks.defined()) CHECK(worst(doubles.a.dsinks, expected.dsinks, 0, 1e-11) < 1);
    });
  }
}

TEST_CASE("flex_attention of one query against a cache equals the naive loops, on each level") {
  on_each_float_level([] {
    for (const Index n : {1, 3, 64, 65, 511, 513, 1200}) {
      const AttentionSize s{2, 4, 2, 1, n, 16, 24};
      const AttentionData x = random_attention(s);
      AttentionCall call{
          .causal = n % 2 == 0,
          .key_lengths = Tensor::from<std::int32_t>({static_cast<double>(n), static_cast<double>(n / 3)})};
      if (n % 3 == 0) call.bias = Rng(5).normal({2, 1, 1, n}, 0, 1, DType::float64), call.bias.ptr<double>()[0] = -kInf;
      FlexAttentionOptions o{
          .score_mod = wave, .block_mask = mask_of(near, s), .sinks = Tensor::from({0.5, -1, 3, -30})};
      const NaiveRules rules{wave_value, wave_slope, near, {0.5, -1, 3, -30}};
      const Tensor expected = naive_attention(x, call, nullptr, {}, rules).out;
      CAPTURE(n);
      FlexAttentionOptions wide = o;
      wide.sinks = o.sinks.to(DType::float64);
      CHECK(worst(flex_attention(x.q, x.k, x.v, wide, call), expected, 0, 1e-12) < 1);
      if (call.bias.defined()) call.bias = call.bias.to(DType::float32);
      const auto f = [](const Tensor& t) { return t.to(DType::float32); };
      CHECK(worst(flex_attention(f(x.q), f(x.k), f(x.v), o, call), expected, 0, 3e-6) < 1);
    }
  });
}

TEST_CASE("flex_attention passes gradcheck, with parameters that a function reads") {
  const AttentionSize s{2, 4, 2, 5, 7, 3, 4};
  const AttentionData x = random_attention(s);
  const Tensor table = normal({4, 5}, 2), cap = Tensor::from({3, 4, 2, 5}).to(DType::float64), one = normal({}, 4),
               sinks = normal({4}, 6), bias = normal({4, 5, 7}, 7);
  const auto f = [](auto y, int, int h, int q, int k, auto by, auto c, auto shift) {
    const int d = std::clamp(k - q, -2, 2) + 2;
    return c(h) * tanh((y + by(h, d)) / c(h)) + shift() * exp(by(h, d)) * y / 4;
  };
  const BlockMask mask = mask_of([](int b, int h, int q, int k) { return (b + h + q + k) % 3 != 0; }, s);
  for (const double dropout : {0.0, 0.3})
    gradcheck(
        [&](const std::vector<Tensor>& in) {
          const FlexAttentionOptions o{.score_mod = {f, in[3], in[4], in[5]}, .block_mask = mask, .sinks = in[6]};
          return flex_attention(in[0], in[1], in[2], o, {.causal = true, .bias = in[7], .dropout = dropout});
        },
        {x.q, x.k, x.v, table, cap, one, sinks, bias});
}

TEST_CASE(
    "flex_attention sums the gradients of parameters over all pairs, with the same bits at any number of threads") {
  const AttentionSize s{2, 4, 2, 300, 700, 8, 8};
  const AttentionData x = random_attention(s);
  const Tensor table = normal({4, 21}, 2), unused = normal({3}, 1);
  const auto index = [](Index q, Index k) { return std::clamp<Index>(k - q, -10, 10) + 10; };
  const auto f = [&](auto y, int, int h, int q, int k, auto by, auto) { return y + by(h, index(q, k)) * 0.5; };
  const NaiveRules rules{[&](double y, Index, Index h, Index q, Index k) {
                           return y + 0.5 * table.at({h, index(q, k)});
                         },
                         {},
                         near};
  const FlexAttentionOptions o{.score_mod = {f, table, unused}, .block_mask = mask_of(near, s, true)};
  const AttentionCall call{.causal = true};
  const AttentionResult expected = naive_attention(x, call, nullptr, {}, rules);
  Tensor sums = Tensor::zeros({4, 21}, DType::float64);
  for (Index b = 0; b < s.batch; ++b)
    for (Index h = 0; h < s.heads; ++h)
      for (Index i = 0; i < s.queries; ++i)
        for (Index j = 0; j < s.keys; ++j)
          sums.ptr<double>()[h * 21 + index(i + s.keys - s.queries, j)] += 0.5 * expected.dscores.at({b, h, i, j});
  const FlexResult doubles = run_flex(x, o, call), floats = run_flex(x, o, call, DType::float32);
  CHECK(attention_error(doubles.a, expected) < 1e-12);
  CHECK(worst(doubles.parameters[0], sums, 0, 1e-11) < 1);
  CHECK(worst(floats.parameters[0], sums, 0, 2e-5) < 1);
  CHECK(worst(doubles.parameters[1], Tensor::zeros({3}, DType::float64), 0, 1e-300) < 1);
  for (const int n : {1, 2, 3}) {
    set_threads(n);
    const FlexResult again = run_flex(x, o, call, DType::float32);
    CHECK(same_bits(again.a.out, floats.a.out));
    CHECK(same_bits(again.a.dq, floats.a.dq));
    CHECK(same_bits(again.a.dk, floats.a.dk));
    CHECK(same_bits(again.parameters[0], floats.parameters[0]));
  }
  set_threads(0);
}

TEST_CASE("create_block_mask finds the empty blocks, and attention skips them") {
  const Index n = 640;
  const BlockMask mask = create_block_mask([](int, int, int q, int k) { return k <= q && q - k < 64; }, 1, 1, n, n);
  CHECK(mask.shape() == Shape{1, 1, n, n});
  // The mask has 20 x 10 blocks of 32 x 64. In each row of blocks, two or three blocks contain keys of the window.
  CHECK(mask.sparsity() > 0.75);
  CHECK(BlockMask().sparsity() == 0);
  // Keys of skipped blocks are not even read; otherwise NaN in them would need a select.
  std::atomic<int> calls = 0;
  const auto counting = [&calls](auto s, int, int, int q, int k) {
    if (q - k >= 64 + 64 + 32 || k - q > 64) ++calls;
    return s;
  };
  const AttentionData x = random_attention({1, 1, 1, n, n, 8, 8});
  run_flex(x, {.score_mod = counting, .block_mask = mask}, {});
  CHECK(calls == 0);
  // Positions: a block of queries in the middle of the keys, at a different offset per sequence.
  const Tensor starts = Tensor::from<std::int32_t>({100, 300});
  const AttentionSize s{2, 2, 2, 40, n, 8, 8};
  const AttentionData y = random_attention(s);
  const auto window = [](int, int, int q, int k) { return k <= q && q - k < 64; };
  const BlockMask there = create_block_mask(window, 2, 1, 40, n, starts);
  const Tensor out = flex_attention(y.q, y.k, y.v, {.score_mod = wave, .block_mask = there, .positions = starts});
  for (Index b = 0; b < 2; ++b) {
    const Index end = static_cast<Index>(starts.at({b})) + 40;
    const auto part = [&](const Tensor& t) { return t.slice(0, b, b + 1).slice(2, 0, std::min(end, t.dim(2))); };
    const AttentionData own{part(y.q), part(y.k), part(y.v), part(y.dout)};
    const NaiveRules rules{
        [&](double x0, Index, Index h, Index q, Index k) { return wave_value(x0, b, h, q, k); }, {}, window};
    CHECK(worst(out.slice(0, b, b + 1), naive_attention(own, {}, nullptr, {}, rules).out, 0, 1e-12) < 1);
  }
}

TEST_CASE("a query that may see nothing gets zeros and passes no gradient on, with a sink too") {
  on_each_float_level([] {
    for (const Index n : {70, 1}) {
      const AttentionSize s{1, 2, 2, n, 300, 8, 8};
      AttentionData x = random_attention(s);
      const auto some = [](int, int h, int q, int k) { return h == 1 && q % 2 == 0 && k % 3 == 0; };
      for (const bool sink : {false, true}) {
        FlexAttentionOptions o{.score_mod = wave, .block_mask = mask_of(some, s)};
        NaiveRules rules{wave_value, wave_slope, some, {}};
        if (sink) o.sinks = normal({2}, 1), rules.sinks = o.sinks.to_vector<double>();
        const AttentionResult expected = naive_attention(x, {}, nullptr, {}, rules);
        const FlexResult r = run_flex(x, o, {});
        CHECK(attention_error(r.a, expected) < 1e-12);
        if (sink) CHECK(worst(r.a.dsinks, expected.dsinks, 0, 1e-12) < 1);
        CHECK(same_bits(r.a.out.select(1, 0).contiguous(), Tensor::zeros({1, n, 8}, DType::float64)));
        CHECK(same_bits(r.a.dq.select(1, 0).contiguous(), Tensor::zeros({1, n, 8}, DType::float64)));
        CHECK(same_bits(flex_attention(x.q, x.k, x.v, o).select(1, 0).contiguous(),
                        Tensor::zeros({1, n, 8}, DType::float64)));
      }
    }
  });
}

TEST_CASE("keys hidden by a block mask may be NaN, as with other masks") {
  on_each_float_level([] {
    for (const Index n : {70, 1}) {
      const AttentionSize s{1, 2, 2, n, 300, 8, 8};
      const AttentionData clean = random_attention(s);
      const auto even = [](int, int, int, int k) { return k % 2 == 0; };
      AttentionData x = clean;
      x.k = clean.k.clone(), x.v = clean.v.clone();
      for (Index h = 0; h < 2; ++h)
        for (Index j = 1; j < 300; j += 2) {
          Tensor k = x.k[0][h][j], v = x.v[0][h][j];
          k.fill_(kNaN), v.fill_(kNaN);
        }
      const FlexAttentionOptions o{.score_mod = wave, .block_mask = mask_of(even, s)};
      const FlexResult expected = run_flex(clean, o, {}), r = run_flex(x, o, {});
      CHECK(worst(r.a.out, expected.a.out, 0, 1e-13) < 1);
      CHECK(worst(r.a.dq, expected.a.dq, 0, 1e-13) < 1);
      CHECK(worst(r.a.dk, expected.a.dk, 0, 1e-13) < 1);
      CHECK(worst(r.a.dv, expected.a.dv, 0, 1e-13) < 1);
      CHECK(worst(flex_attention(x.q, x.k, x.v, o), expected.a.out, 0, 1e-13) < 1);
      // NaN in a visible value makes the outputs of its queries NaN.
      Tensor seen = x.v[0][0][8];
      seen.fill_(kNaN);
      const Tensor out = flex_attention(x.q, x.k, x.v, o);
      CHECK(std::isnan(out.at({0, 0, n - 1, 0})));
      CHECK(!std::isnan(out.at({0, 1, n - 1, 0})));
    }
  });
}

TEST_CASE("flex_attention without a function is attention, bit for bit") {
  const AttentionData x = random_attention({2, 4, 2, 70, 130, 8, 12});
  const AttentionCall call{
      .causal = true, .key_lengths = Tensor::from<std::int32_t>({130, 40}), .bias = normal({4, 70, 130}, 3)};
  const FlexResult a = run_flex(x, {}, call);
  const AttentionResult b = run_attention(x, call);
  CHECK(same_bits(a.a.out, b.out));
  CHECK(same_bits(a.a.dq, b.dq));
  CHECK(same_bits(a.a.dk, b.dk));
  CHECK(same_bits(a.a.dv, b.dv));
  CHECK(same_bits(a.a.dbias, b.dbias));
}

TEST_CASE("exceptions of a score function or mask function reach the caller") {
  set_threads(2);
  const AttentionData x = random_attention({2, 4, 4, 300, 300, 8, 8});
  struct Refused {};
  const auto refuse = [](auto s, int b, int, int q, int) {
    if (b == 1 && q == 250) throw Refused();
    return s;
  };
  CHECK_THROWS_AS(flex_attention(x.q, x.k, x.v, {.score_mod = refuse}), Refused);
  const auto refuse_mask = [](int, int, int q, int) -> bool { return q == 250 ? throw Refused() : true; };
  CHECK_THROWS_AS(create_block_mask(refuse_mask, 1, 1, 300, 300), Refused);
  const Tensor table = normal({4, 3});
  check_errors({{"reads entry [0, 3] of a parameter of [4, 3, 1, 1]",
                 [&] {
                   const auto beyond = [](auto s, int, int h, int, int k, auto by) { return s + by(h, k); };
                   flex_attention(x.q, x.k, x.v, {.score_mod = {beyond, table}});
                 }},
                {"with one index per axis",
                 [&] {
                   const auto few = [](auto s, int, int h, int, int, auto by) { return s + by(h); };
                   flex_attention(x.q, x.k, x.v, {.score_mod = {few, table}});
                 }},
                {"depends on more than 4 entries", [&] {
                   const auto many = [](auto s, int, int, int, int, auto by) {
                     return s + by(0, 0) + by(0, 1) + by(1, 0) + by(1, 1) + by(0, 0) + by(2, 0);
                   };
                   run_flex(x, {.score_mod = {many, table}}, {});
                 }}});
  set_threads(0);
}

TEST_CASE("flex_attention with empty tensors gives empty tensors") {
  const auto always = [](int, int, int, int) { return true; };
  for (const auto& [queries, keys] : {std::pair{0, 5}, {5, 0}, {0, 0}}) {
    const AttentionData x = random_attention({1, 2, 2, queries, keys, 3, 3});
    const FlexResult r = run_flex(
        x, {.score_mod = wave, .block_mask = create_block_mask(always, 1, 1, queries, keys), .sinks = normal({2})}, {});
    CHECK(same_bits(r.a.out.contiguous(), Tensor::zeros({1, 2, queries, 3}, DType::float64)));
    CHECK(same_bits(r.a.dk.contiguous(), Tensor::zeros({1, 2, keys, 3}, DType::float64)));
  }
}

TEST_CASE("the memory of flex_attention grows with the length, not with its square") {
  const auto peak = [](Index n) {
    const AttentionData x = random_attention({1, 2, 2, n, n, 4, 4});
    const Tensor table = normal({2, 9});
    const auto f = [](auto s, int, int h, int q, int k, auto by) { return s + by(h, std::clamp(k - q, -4, 4) + 4); };
    const std::size_t before = memory_use().current;
    reset_peak_memory();
    run_flex(x, {.score_mod = {f, table}, .block_mask = create_block_mask(near, 1, 1, n, n), .sinks = normal({2})},
             {.causal = true});
    return static_cast<double>(memory_use().peak - before);
  };
  const double few = peak(512), many = peak(2048);
  CHECK(many <= 1.25 * 4 * few);
  CHECK(many < 0.25 * 2 * 2048 * 2048 * sizeof(double));
}

namespace {

ScoreMod mod_of(const std::string& name, Named& x) {
  if (name == "alibi") return alibi(x["slopes"]);
  if (name == "soft cap") return soft_cap(x["cap"]);
  if (name == "relative") return relative_bias(x["table"]);
  const auto own = [](auto s, int, int h, int q, int k, auto c, auto by) {
    return c(h) * sin(s) + by(h, std::clamp(k - q, -3, 3) + 3) * s;
  };
  return {own, x["cap"], x["table"]};
}

}  // namespace

TEST_CASE("flex_attention: values and gradients are PyTorch's") {
  const StoredCases& reference = stored_cases("flex_torch.json");
  int compared = 0;
  for (const auto& item : reference.cases) {
    const std::string &title = item.first, name = title.substr(0, title.find(','));
    CAPTURE(title);
    const Named& expected = item.second;
    const auto attend = [&](Named& x) {
      const bool window = contains(title, "window");
      FlexAttentionOptions o{.score_mod = mod_of(name, x)};
      if (window) o.block_mask = create_block_mask(sliding_window(3), 1, 1, 5, 7);
      if (contains(title, "sinks")) o.sinks = x["sinks"];
      return flex_attention(x["q"], x["k"], x["v"], o, {.causal = window});
    };
    Tape tape;
    Named watched, floats;
    for (const auto& [key, x] : reference.inputs) watched[key] = tape.watch(x), floats[key] = x.to(DType::float32);
    const Tensor y = attend(watched);
    tape.backward(y, reference.inputs.at("dy"));
    CHECK(close(y.detach(), expected.at("y"), 1e-12, 1e-13));
    for (const auto& input : expected) {
      const auto& key = input.first;
      const auto& gradient = input.second;
      if (key == "y") continue;
      CAPTURE(std::string(key));
      CHECK(close(tape.grad(watched[key]), gradient, 1e-11, 1e-13));
    }
    CHECK(close(attend(floats), expected.at("y"), 1e-5, 2e-6));
    ++compared;
  }
  CHECK(compared == 12);
}

// Speed of gated attention, forward and backward, on given q, k, v, gates and rates: time per token relative to causal
// linear attention of the same size, and the time and memory of the attention of a published model (Qwen3-Next: 16 key
// heads and 32 value heads of 128, gated delta rule, 4,096 tokens).
//
//   bench_gated_attention [threads]
#include <cstdio>
#include <cstdlib>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/gated_attention.hpp>
#include <heed/autograd/linear_attention.hpp>
#include <heed/autograd/reductions.hpp>
#include <heed/autograd/tape.hpp>
#include <heed/core/memory.hpp>
#include <heed/core/parallel.hpp>
#include <heed/core/random.hpp>

#include "benchmarks/peak.hpp"

using namespace heed;

namespace {

struct Case {
  Index key_heads, heads, length, width;
};

// The gates and the rule of a mechanism.
struct Rule {
  const char* name;
  enum { no_gate, decay, scalar, channel } gate;
  bool delta;
};
constexpr Rule kRules[] = {{"decay", Rule::decay, false},         {"scalar gate", Rule::scalar, false},
                           {"vector gate", Rule::channel, false}, {"delta", Rule::no_gate, true},
                           {"gated delta", Rule::scalar, true},   {"KDA", Rule::channel, true}};

struct Inputs {
  Tensor q, k, v, dy;
  GatedAttentionOptions options;
};

// Tensors [1, H, T, width] as projections give them: the heads of a position are adjacent.
Inputs inputs_of(const Case& c, const Rule& rule) {
  Rng rng(1);
  const auto heads = [&](Index n, Index width) { return rng.normal({1, c.length, n, width}).transpose(1, 2); };
  const auto unit = [](const Tensor& x) { return x * rsqrt(sum(x * x, {-1}, true) + 1e-6); };
  Inputs x{unit(heads(c.key_heads, c.width)),
           unit(heads(c.key_heads, c.width)),
           heads(c.heads, c.width),
           rng.normal({1, c.length, c.heads, c.width}),
           {}};
  const Tensor rows = rng.normal({1, c.heads, c.length});
  if (rule.gate == Rule::decay) x.options.log_gate = Tensor::full({c.heads, 1}, -0.01);
  if (rule.gate == Rule::scalar) x.options.log_gate = -softplus(rows) * 0.1;
  if (rule.gate == Rule::channel) x.options.log_gate = -softplus(heads(c.heads, c.width)) * 0.1;
  if (rule.delta) x.options.beta = sigmoid(rows);
  return x;
}

struct Times {
  double forward, both;
};

template <class F>
Times times_of(const Tensor& dy, const F& f) {
  const auto run = [&](bool back) {
    Tape tape;
    const Tensor y = f(tape).transpose(1, 2);
    if (back) tape.backward(y, dy);
  };
  return {benchmarks::median_seconds([&] { run(false); }, 0.5), benchmarks::median_seconds([&] { run(true); }, 1)};
}

Times of_rule(const Inputs& x, bool fixed_gate) {
  return times_of(x.dy, [&](Tape& tape) {
    GatedAttentionOptions o = x.options;
    if (o.log_gate.defined() && !fixed_gate) o.log_gate = tape.watch(o.log_gate);
    if (o.beta.defined()) o.beta = tape.watch(o.beta);
    return gated_attention(tape.watch(x.q), tape.watch(x.k), tape.watch(x.v), o);
  });
}

Times of_linear(const Inputs& x) {
  return times_of(x.dy, [&](Tape& tape) {
    return linear_attention(tape.watch(x.q), tape.watch(x.k), tape.watch(x.v), {.causal = true});
  });
}

void print_row(const char* name, const Times& t, const Times& unit, double tokens) {
  std::printf("    %-18s forward %7.2f us per token, both %7.2f; linear attention = 1: %4.2f\n", name,
              t.forward / tokens * 1e6, t.both / tokens * 1e6, t.both / unit.both);
}

void compare(const Case& c) {
  const auto tokens = static_cast<double>(c.length);
  std::printf("  H=%lld D=%lld T=%lld\n", static_cast<long long>(c.heads), static_cast<long long>(c.width),
              static_cast<long long>(c.length));
  const Times linear = of_linear(inputs_of(c, kRules[0]));
  print_row("linear attention", linear, linear, tokens);
  for (const Rule& rule : kRules)
    print_row(rule.name, of_rule(inputs_of(c, rule), rule.gate == Rule::decay), linear, tokens);
}

void report_model() {
  const Inputs x = inputs_of({16, 32, 4096, 128}, kRules[4]);
  const std::size_t before = memory_use().current;
  std::size_t kept = 0;
  {
    Tape tape;
    GatedAttentionOptions o = x.options;
    o.log_gate = tape.watch(o.log_gate), o.beta = tape.watch(o.beta);
    const Tensor y = gated_attention(tape.watch(x.q), tape.watch(x.k), tape.watch(x.v), o);
    kept = memory_use().current - before - static_cast<std::size_t>(y.numel()) * sizeof(float);
  }
  const Times t = of_rule(x, false);
  std::printf(
      "  16 key heads, 32 value heads, D=128, T=4096, gated delta: forward %.2f s, both %.2f s; kept for backward "
      "%.0f MB\n",
      t.forward, t.both, static_cast<double>(kept) / 1e6);
}

}  // namespace

int main(int argc, char** argv) {
  set_threads(argc > 1 ? std::atoi(argv[1]) : 0);
  std::printf("gated attention, float32, %s, %d threads: peak %.0f GFLOP/s\n", arch(), threads(),
              benchmarks::peak_flops(DType::float32, threads()) / 1e9);
  report_model();
  for (const Index width : {64, 128})
    for (const Index length : {1024, 4096}) compare({8, 8, length, width});
}

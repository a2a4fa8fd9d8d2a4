// Speed of flex_attention, forward and backward, compared with causal attention() on the same queries, keys and values:
// milliseconds, and the ratio to attention(). 8 heads of size 64, one sequence, float32. Score functions are built-in
// ones and the same functions as lambdas of a program.
//   bench_flex_attention [threads]
#include <cstdio>
#include <cstdlib>
#include <heed/autograd/attention.hpp>
#include <heed/autograd/flex_attention.hpp>
#include <heed/autograd/tape.hpp>
#include <heed/core/parallel.hpp>
#include <heed/core/random.hpp>
#include <string>

#include "benchmarks/peak.hpp"

using namespace heed;

namespace {

constexpr Index kHeads = 8, kWidth = 64;

struct Times {
  double forward, both;
};

// attend(q, k, v, p) -> [1, H, T, D]. p: `parameter`, watched by the tape, if it is defined.
template <class Attend>
Times time_of(Index length, const Tensor& parameter, const Attend& attend) {
  const Shape shape = {1, kHeads, length, kWidth};
  const Tensor q = Rng(1).normal(shape), k = Rng(2).normal(shape), v = Rng(3).normal(shape), dy = Rng(4).normal(shape);
  const auto run = [&](bool back) {
    Tape tape;
    const Tensor p = parameter.defined() ? tape.watch(parameter) : Tensor();
    const Tensor y = attend(tape.watch(q), tape.watch(k), tape.watch(v), p);
    if (back) tape.backward(y, dy);
  };
  return {benchmarks::median_seconds([&] { run(false); }, 0.5), benchmarks::median_seconds([&] { run(true); }, 1)};
}

void report(Index length) {
  std::printf("T = %lld\n", static_cast<long long>(length));
  const Times plain =
      time_of(length, {}, [](In q, In k, In v, const Tensor&) { return attention(q, k, v, {.causal = true}); });
  const auto row = [&](const char* name, const FlexAttentionOptions& o) {
    const std::vector<Tensor> parameters = o.score_mod.parameters();
    const bool trained = std::string(name).find("trained") != std::string::npos;
    const Times t = time_of(length, trained ? parameters[0] : Tensor(), [&](In q, In k, In v, const Tensor& p) {
      FlexAttentionOptions with = o;
      if (trained) with.score_mod = o.score_mod.with(std::vector<Tensor>{p});
      return flex_attention(q, k, v, with, {.causal = true});
    });
    std::printf("  %-28s forward %8.2f ms, both %8.2f; %5.2f and %5.2f times attention()\n", name, t.forward * 1e3,
                t.both * 1e3, t.forward / plain.forward, t.both / plain.both);
  };
  std::printf("  %-28s forward %8.2f ms, both %8.2f\n", "attention(), causal", plain.forward * 1e3, plain.both * 1e3);
  const Tensor slopes = alibi_slopes(kHeads), table = Rng(5).normal({kHeads, 257});
  const float* slope = slopes.data<float>();
  const auto alibi_lambda = [slope](auto s, int, int h, int q, int k) {
    return s - slope[h] * static_cast<float>(q - k);
  };
  const auto cap_lambda = [](auto s, int, int, int, int) { return 50 * tanh(s / 50); };
  const auto bias_lambda = [](auto s, int, int h, int q, int k, auto by) {
    return s + by(h, std::clamp(k - q, -128, 128) + 128);
  };
  const BlockMask window = create_block_mask(sliding_window(256), 1, 1, length, length);
  const BlockMask streaming = create_block_mask(sliding_window(256, 4), 1, 1, length, length);
  row("alibi", {.score_mod = alibi(kHeads)});
  row("alibi, a lambda", {.score_mod = alibi_lambda});
  row("soft cap", {.score_mod = soft_cap(50.0)});
  row("soft cap, a lambda", {.score_mod = cap_lambda});
  row("relative bias, trained", {.score_mod = relative_bias(table)});
  row("relative, trained lambda", {.score_mod = {bias_lambda, table}});
  row("sinks", {.sinks = Tensor::zeros({kHeads})});
  row("window of 256", {.block_mask = window});
  row("window of 256 and 4 sinks", {.block_mask = streaming});
  row("alibi, window of 256", {.score_mod = alibi(kHeads), .block_mask = window});
  const double made =
      benchmarks::median_seconds([&] { create_block_mask(sliding_window(256), 1, 1, length, length); }, 0.3);
  std::printf("  %-28s         %8.2f ms; %.0f %% of the blocks are skipped\n", "create_block_mask, window", made * 1e3,
              100 * window.sparsity());
}

}  // namespace

int main(int argc, char** argv) {
  set_threads(argc > 1 ? std::atoi(argv[1]) : 0);
  std::printf("%s, float32, %d threads, %lld heads of %lld\n", arch(), threads(), static_cast<long long>(kHeads),
              static_cast<long long>(kWidth));
  for (const Index length : {1024, 4096}) report(length);
}

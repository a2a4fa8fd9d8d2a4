// Speed of softmax attention, forward and backward: microseconds per token, GFLOP/s and the share of the machine's
// multiply-add peak in the same run. Counts the multiplications and additions of the pairs that a causal mask allows
// (per pair 4 D forward, 10 D backward). Also measures one token against a long cache, which is limited by memory, and
// one token of a decoder block whose memory is already projected or is projected again.
//   bench_attention [--dtype f32|bf16] [threads] [lengths]
// lengths: only the first three rows, those of benchmarks/peers/attention_torch.py.
// bf16: q, k, v and the result are bfloat16; the peak is that of the bf16 dot product if the level has one.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <heed/autograd/attention.hpp>
#include <heed/autograd/tape.hpp>
#include <heed/core/parallel.hpp>
#include <heed/core/random.hpp>
#include <heed/layers/transformer.hpp>
#include <iterator>

#include "benchmarks/peak.hpp"

using namespace heed;

namespace {

struct Case {
  const char* name;
  Index batch, heads, length, width;
  bool causal;
};

constexpr Case kCases[] = {
    {"T = 256", 1, 8, 256, 64, true},         {"T = 1024", 1, 8, 1024, 64, true}, {"T = 4096", 1, 8, 4096, 64, true},
    {"T = 1024, all", 1, 8, 1024, 64, false}, {"nano", 12, 4, 64, 32, true},      {"baby", 16, 6, 256, 64, true},
    {"gpt2", 1, 12, 1024, 64, true},          {"one head", 1, 1, 1024, 64, true},
};

void report(const Case& c, DType dtype, double peak) {
  const Shape shape = {c.batch, c.length, 3, c.heads, c.width};
  const Tensor fused = Rng(1).normal(shape).to(dtype), dy = Rng(2).normal({c.batch, c.length, c.heads * c.width});
  const auto run = [&](bool back) {
    Tape tape;
    const Tensor x = tape.watch(fused);
    const auto third = [&](Index i) { return x.select(2, i).transpose(1, 2); };
    const Tensor heads = attention(third(0), third(1), third(2), {.causal = c.causal}),
                 y = heads.transpose(1, 2).reshape(dy.shape());
    if (back) tape.backward(y, dy);
  };
  const double forward = benchmarks::median_seconds([&] { run(false); }, 0.3);
  const double both = benchmarks::median_seconds([&] { run(true); }, 0.6);
  const double n = static_cast<double>(c.length), pairs = c.causal ? n * (n + 1) / 2 : n * n;
  const double products = pairs * static_cast<double>(c.width * c.batch * c.heads),
               tokens = n * static_cast<double>(c.batch);
  std::printf("  %-16s forward %8.2f us per token, both %8.2f; %4.0f and %4.0f GFLOP/s, %3.0f%% and %3.0f%% of peak\n",
              c.name, forward / tokens * 1e6, both / tokens * 1e6, 4 * products / forward / 1e9,
              14 * products / both / 1e9, 400 * products / forward / peak, 1400 * products / both / peak);
}

void report_decoding(Index heads, Index kv_heads, Index cache, DType dtype) {
  const Tensor q = Rng(1).normal({1, heads, 1, 64}).to(dtype), k = Rng(2).normal({1, kv_heads, cache, 64}).to(dtype),
               v = Rng(3).normal({1, kv_heads, cache, 64}).to(dtype);
  const double s = benchmarks::median_seconds([&] { attention(q, k, v, {.causal = true}); }, 0.3);
  std::printf("  one token, %lld heads on %lld, cache of %6lld: %8.1f us, %5.1f GB/s\n", static_cast<long long>(heads),
              static_cast<long long>(kv_heads), static_cast<long long>(cache), s * 1e6,
              128.0 * static_cast<double>(static_cast<Index>(size_of(dtype)) * kv_heads * cache) / s / 1e9);
}

void report_decoder(Index positions) {
  Rng rng(1);
  const TransformerBlock block({.attention = {.width = 512, .heads = 8, .memory_width = 512}, .dropout = 0}, rng);
  const Tensor x = rng.normal({1, 1, 512}), memory = rng.normal({1, positions, 512});
  const ProjectedMemory projected = block.project(memory);
  // A new state per step, so that the state does not grow.
  const auto step = [&](const ProjectedMemory& m) {
    AttentionState state;
    block.decode(x, state, m);
  };
  const double once = benchmarks::median_seconds([&] { step(projected); }, 0.3),
               projected_again = benchmarks::median_seconds([&] { step(block.project(memory)); }, 0.3);
  std::printf("  decoder block of width 512, memory of %4lld: %8.1f us per token; projected in each step %8.1f\n",
              static_cast<long long>(positions), once * 1e6, projected_again * 1e6);
}

}  // namespace

int main(int argc, char** argv) {
  const DType dtype = benchmarks::take_dtype(argc, argv);
  set_threads(argc > 1 ? std::atoi(argv[1]) : 0);
  const double peak = benchmarks::peak_flops(dtype, threads());
  std::printf("%s, %s, %d threads: peak %.0f GFLOP/s\n", arch(), std::string(name_of(dtype)).c_str(), threads(),
              peak / 1e9);
  const bool lengths = argc > 2 && std::strcmp(argv[2], "lengths") == 0;
  for (int i = 0; i < (lengths ? 3 : static_cast<int>(std::size(kCases))); ++i) report(kCases[i], dtype, peak);
  if (lengths) return 0;
  for (Index cache : {100, 1000, 10000, 100000}) report_decoding(8, 8, cache, dtype);
  report_decoding(8, 2, 100000, dtype);
  if (dtype == DType::bfloat16) return 0;
  for (Index positions : {16, 256, 2048}) report_decoder(positions);
}

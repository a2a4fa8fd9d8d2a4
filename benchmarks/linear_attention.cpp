// Speed of causal linear attention, forward and backward, including the feature map: microseconds per token, and the
// share of the machine's multiply-add peak in the same run. Counts the products of
// core/kernels/linear_attention/linear_attention.hpp with chunks of c = 64 and half of each triangle. Per token and
// head these are
//   forward c (D + Dv) + 4 D Dv, backward c (3 D + 2 Dv) + 10 D Dv
//
//   bench_linear_attention [--dtype f32|bf16] [threads]
// bf16: q, k, v and the result are bfloat16; products and sums, and therefore the peak, are float32.
#include <cstdio>
#include <cstdlib>
#include <heed/autograd/linear_attention.hpp>
#include <heed/autograd/tape.hpp>
#include <heed/core/memory.hpp>
#include <heed/core/parallel.hpp>
#include <heed/core/random.hpp>

#include "benchmarks/peak.hpp"

using namespace heed;

namespace {

struct Case {
  Index batch, heads, length, width;
};

constexpr Case kCases[] = {{1, 8, 256, 64},   {1, 8, 1024, 64}, {1, 8, 4096, 64},  {1, 8, 16384, 64},
                           {1, 8, 65536, 64}, {12, 4, 64, 32},  {1, 1, 16384, 64}, {1, 2, 16384, 256}};

void report(const Case& c, DType dtype, double peak) {
  const Tensor fused = Rng(1).normal({c.batch, c.length, 3, c.heads, c.width}).to(dtype),
               dy = Rng(2).normal({c.batch, c.length, c.heads * c.width});
  const auto run = [&](bool back) {
    Tape tape;
    const Tensor x = tape.watch(fused);
    const auto third = [&](Index i) { return x.select(2, i).transpose(1, 2); };
    const Tensor heads = linear_attention(third(0), third(1), third(2), {.causal = true}),
                 y = heads.transpose(1, 2).reshape(dy.shape());
    if (back) tape.backward(y, dy);
  };
  const double forward = benchmarks::median_seconds([&] { run(false); }, 0.3);
  reset_peak_memory();
  const std::size_t before = memory_use().current;
  const double both = benchmarks::median_seconds([&] { run(true); }, 0.6);
  const double mebibytes = static_cast<double>(memory_use().peak - before) / (1 << 20);
  const auto d = static_cast<double>(c.width), heads = static_cast<double>(c.heads);
  const double tokens = static_cast<double>(c.length * c.batch), chunk = 64;
  const double flops = heads * (chunk * 7 * d + 14 * d * d);
  std::printf(
      "  B=%-2lld H=%lld D=%-3lld T=%-6lld forward %6.2f us per token, both %6.2f (%3.0f%% of peak); %7.1f MiB\n",
      static_cast<long long>(c.batch), static_cast<long long>(c.heads), static_cast<long long>(c.width),
      static_cast<long long>(c.length), forward / tokens * 1e6, both / tokens * 1e6, 100 * flops * tokens / both / peak,
      mebibytes);
}

}  // namespace

int main(int argc, char** argv) {
  const DType dtype = benchmarks::take_dtype(argc, argv);
  set_threads(argc > 1 ? std::atoi(argv[1]) : 0);
  const double peak = benchmarks::peak_flops(DType::float32, threads());
  std::printf("causal linear attention, %s, %s, %d threads: peak %.0f GFLOP/s\n", arch(),
              std::string(name_of(dtype)).c_str(), threads(), peak / 1e9);
  for (const Case& c : kCases) report(c, dtype, peak);
}

// Limits of this machine at the current level, for comparison with the other benchmarks. These are multiply-adds in
// registers, the bandwidth of memory beyond all caches, and the round-trip time of a cache line between two cores. A
// copy counts bytes read and bytes written.
//
//   bench_limits [--threads N] [--core-to-core]
//
// --core-to-core: only the round-trip time, in about 0.02 s.
#include <cstdio>
#include <cstring>
#include <heed/core/parallel.hpp>
#include <heed/core/tensor.hpp>
#include <string>
#include <thread>
#include <vector>

#include "benchmarks/peak.hpp"

using namespace heed;

namespace {

double copy_bandwidth(int threads) {
  constexpr std::size_t bytes = std::size_t{1} << 29;
  const Tensor from = Tensor::zeros({Index{bytes / 4}}), to = Tensor::zeros({Index{bytes / 4}});
  const auto* source = static_cast<const char*>(from.raw());
  auto* target = reinterpret_cast<char*>(to.ptr<float>());
  const std::size_t part = bytes / static_cast<std::size_t>(threads);
  const auto copy = [&](int t) {
    const std::size_t begin = static_cast<std::size_t>(t) * part;
    std::memcpy(target + begin, source + begin, part);
  };
  double best = 0;
  for (int run = 0; run < 4; ++run) {
    std::vector<std::thread> others;
    const double start = benchmarks::seconds();
    for (int t = 1; t < threads; ++t) others.emplace_back(copy, t);
    copy(0);
    for (std::thread& t : others) t.join();
    best = std::max(best, 2 * static_cast<double>(part) * threads / (benchmarks::seconds() - start));
  }
  return best;
}

}  // namespace

int main(int argc, char** argv) {
  bool all = true;
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    if (a == "--threads" && i + 1 < argc) {
      set_threads(std::stoi(argv[++i]));
    } else if (a == "--core-to-core") {
      all = false;
    } else {
      std::fprintf(stderr, "bench_limits: unknown argument '%s'; it must be --threads N or --core-to-core\n", argv[i]);
      return 2;
    }
  }
  const int n = threads();
  std::printf("limits, %s, %d threads:", arch(), n);
  if (all)
    std::printf(" float32 %.1f GFLOP/s, bf16 %.1f GFLOP/s, read %.2f GB/s, copy %.2f GB/s",
                benchmarks::peak_flops(DType::float32, n) / 1e9, benchmarks::peak_flops(DType::bfloat16, n) / 1e9,
                benchmarks::read_bandwidth(n) / 1e9, copy_bandwidth(n) / 1e9);
  if (const double seconds = benchmarks::core_to_core(n); seconds > 0)
    std::printf("%s core to core and back %.0f ns", all ? "," : "", seconds * 1e9);
  std::printf("\n");
}

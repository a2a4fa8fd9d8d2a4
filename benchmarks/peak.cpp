#include "benchmarks/peak.hpp"

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <heed/core/tensor.hpp>
#include <thread>
#include <vector>

namespace heed::benchmarks {

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double read_bandwidth(int threads) {
  constexpr Index bytes = Index{1} << 30;
  static const Tensor memory = Tensor::zeros({bytes / 4});
  const auto* data = reinterpret_cast<const std::uint64_t*>(memory.raw());
  const Index words = bytes / 8 / threads / 64 * 64;  // of a thread
  std::vector<std::uint64_t> sums(static_cast<std::size_t>(threads) * 8);
  const auto read = [&](int t) {
    std::uint64_t sum[8] = {};
    for (const std::uint64_t *p = data + t * words, *end = p + words; p < end; p += 8)
      for (int i = 0; i < 8; ++i) sum[i] += p[i];
    for (int i = 0; i < 8; ++i) sums[static_cast<std::size_t>(t) * 8] += sum[i];
  };
  double best = 0;
  for (int run = 0; run < 4; ++run) {
    std::vector<std::thread> others;
    const double start = seconds();
    for (int t = 1; t < threads; ++t) others.emplace_back(read, t);
    read(0);
    for (std::thread& t : others) t.join();
    best = std::max(best, static_cast<double>(words * 8 * threads) / (seconds() - start));
  }
  for (const std::uint64_t sum : sums) if (sum != 0) std::abort();  // the sums are wanted
  return best;
}

}  // namespace heed::benchmarks

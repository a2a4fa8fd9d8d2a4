#include "benchmarks/peak.hpp"

#include <chrono>
#include <thread>
#include <vector>

#include "benchmarks/kernels/peak.hpp"

namespace heed::benchmarks {

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double peak_flops(DType type, int threads) {
  const kernels::PeakLoop loop = type == DType::float64    ? kernels::peak_loops().float64
                                 : type == DType::bfloat16 ? kernels::bf16_peak_loop()
                                                           : kernels::peak_loops().float32;
  if (loop == nullptr) return 0;
  constexpr long rounds = 1000000;
  double best = 0;
  for (int run = 0; run < 10; ++run) {
    std::vector<std::thread> others;
    const double start = seconds();
    for (int t = 1; t < threads; ++t) others.emplace_back([&] { loop(rounds); });
    const double operations = loop(rounds) * threads;
    for (std::thread& t : others) t.join();
    const double rate = operations / (seconds() - start);
    if (rate > best) best = rate;
  }
  return best;
}

}  // namespace heed::benchmarks

#include "benchmarks/peak.hpp"

#include <chrono>
#include <heed/core/kernels/gemm_bf16.hpp>
#include <heed/core/kernels/gemm_peak.hpp>
#include <thread>
#include <vector>

namespace heed::benchmarks {

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double peak_flops(DType type, int threads) {
  const kernels::PeakTable& table = kernels::gemm_peak();
  if (type == DType::bfloat16 && kernels::bf16_table() == nullptr) return 0;
  const auto loop = type == DType::float64    ? table.float64
                    : type == DType::bfloat16 ? kernels::bf16_table()->peak
                                              : table.float32;
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

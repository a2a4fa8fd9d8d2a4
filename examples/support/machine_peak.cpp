#include "examples/support/machine_peak.hpp"

#include <algorithm>
#include <chrono>
#include <heed/core/kernels/gemm_peak.hpp>
#include <heed/core/parallel.hpp>
#include <vector>

namespace heed::examples {

double machine_peak_flops() {
  const auto seconds = [] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  };
  constexpr long kRounds = 200000;
  double best = 0;
  for (int i = 0; i < 4; ++i) {
    std::vector<double> operations(static_cast<std::size_t>(threads()));
    const double start = seconds();
    parallel_for(threads(), 1, [&](Index b, Index e) {
      for (Index t = b; t < e; ++t) operations[static_cast<std::size_t>(t)] = kernels::gemm_peak().float32(kRounds);
    });
    double sum = 0;
    for (double n : operations) sum += n;
    best = std::max(best, sum / (seconds() - start));
  }
  return best;
}

}  // namespace heed::examples

#include "examples/support/machine_peak.hpp"

#include <algorithm>
#include <heed/core/parallel.hpp>
#include <heed/optim/detail/clock.hpp>
#include <vector>

#include "benchmarks/kernels/peak.hpp"

namespace heed::examples {

double machine_peak_flops() {
  constexpr long kRounds = 200000;
  double best = 0;
  for (int i = 0; i < 4; ++i) {
    std::vector<double> operations(static_cast<std::size_t>(threads()));
    const double start = heed::detail::seconds_now();
    parallel_for(threads(), 1, [&](Index b, Index e) {
      for (Index t = b; t < e; ++t) operations[static_cast<std::size_t>(t)] = kernels::peak_loops().float32(kRounds);
    });
    double sum = 0;
    for (double n : operations) sum += n;
    best = std::max(best, sum / (heed::detail::seconds_now() - start));
  }
  return best;
}

}  // namespace heed::examples

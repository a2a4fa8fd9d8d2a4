// What the machine can do, measured in the run that it is compared with.
#pragma once
#include <heed/core/dtype.hpp>

namespace heed::benchmarks {

// Operations a second of multiply-adds that stay in registers, at the level that runs: of one thread, or of all threads
// at once. bfloat16 is the dot product where the level has one, else 0.
double peak_flops(DType type, int threads);

double seconds();  // of a steady clock

// The shortest of several runs of f, which are repeated for about `budget` seconds in all, at least three times.
template <class F>
double best_seconds(F&& f, double budget = 0.3) {
  double best = 1e30;
  const double start = seconds();
  for (int i = 0; i < 3 || seconds() - start < budget; ++i) {
    const double t = seconds();
    f();
    const double took = seconds() - t;
    if (took < best) best = took;
  }
  return best;
}

}  // namespace heed::benchmarks

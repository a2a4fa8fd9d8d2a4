// The parts of a Transformer layer (cost.hpp), run and measured.
#pragma once
#include <cstdint>
#include <vector>

#include "examples/experiments/cost.hpp"

namespace heed::examples {

struct MeasureOptions {
  bool backward = true;  // forward and backward; else forward alone
  int repeats = 5;       // runs after one that is not counted; up to 25 of those that take less than 10 ms
  std::uint64_t seed = 1;
};

struct Measured {
  std::vector<double> milliseconds;  // of each run
  double peak_mebibytes = 0;         // the most in tensors during a run, beyond input and weights
};

// One sequence of n positions through a part, float32.
Measured measure(Part part, Index n, const LayerShape& shape, const MeasureOptions& options);

// Milliseconds that f takes.
double milliseconds(const std::function<void()>& f);

}  // namespace heed::examples

// Runs and measures the parts of a Transformer layer (cost.hpp).
#pragma once
#include <cstdint>
#include <functional>
#include <heed/core/tensor.hpp>
#include <vector>

#include "examples/experiments/cost.hpp"

namespace heed::examples {

// How a part is measured.
struct MeasureOptions {
  bool backward = true;  // false: forward only
  int repeats = 5;       // timed runs, at least; up to 25 in all if they are short
  std::uint64_t seed = 1;
};

// The measurements of a part.
struct Measured {
  std::vector<double> milliseconds;  // per run
  double peak_mebibytes = 0;         // max of tensor memory during a run, without input and weights
};

// Measures a part of a layer on one sequence of n positions, in float32.
Measured measure(Part part, Index n, const LayerShape& shape, const MeasureOptions& options);

// Measures a function of x, and its backward pass unless options.backward is false.
Measured measure_forward(const std::function<Tensor(const Tensor& x)>& forward, const Tensor& x,
                         const MeasureOptions& options);

// The time of f in milliseconds.
double milliseconds(const std::function<void()>& f);

}  // namespace heed::examples

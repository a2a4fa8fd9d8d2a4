// What benchmarks measure with: a clock, and what the machine can do, in the run that it is compared with.
#pragma once
#include <algorithm>
#include <cstddef>
#include <heed/core/parallel.hpp>
#include <span>
#include <utility>
#include <vector>

namespace heed::benchmarks {

using heed::peak_flops;

// Seconds that the threads together take to read these blocks, each thread its part of each, without a pause: what no
// work on the same bytes is faster than. How fast that is depends on where they lie: on huge pages or small ones, and
// on which of a virtual machine's memory, by twice.
double read_seconds(int threads, const std::vector<std::span<const char>>& blocks);
// Bytes a second, of 1 GB that no cache holds: the best of some passes.
double read_bandwidth(int threads);

// Seconds that a cache line takes from one processor to another and back, measured for some 20 ms: between the first of
// as many as there are threads and the one of them that is farthest from it, as threads that share a loop wait for the
// last. Short where they share a cache. 0 where there are not two.
double core_to_core(int threads);

// What arguments that begin with `--dtype f32|bf16` name, which it takes away from them; float32 where they do not.
DType take_dtype(int& argc, char**& argv);

double seconds();  // of a steady clock

// Of one number or more.
inline double median(std::vector<double> x) {
  const auto middle = x.begin() + static_cast<std::ptrdiff_t>(x.size() / 2);
  std::nth_element(x.begin(), middle, x.end());
  return *middle;
}

// The median of several runs of f, which are repeated for about `budget` seconds in all, at least three times, after
// one that is not counted.
template <class F>
double median_seconds(F&& f, double budget = 0.3) {
  f();
  std::vector<double> times;
  const double start = seconds();
  while (times.size() < 3 || seconds() - start < budget) {
    const double t = seconds();
    f();
    times.push_back(seconds() - t);
  }
  return median(std::move(times));
}

}  // namespace heed::benchmarks

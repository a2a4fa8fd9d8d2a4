// Measuring tools of the benchmarks: a clock, and limits of the machine measured in the same run.
#pragma once
#include <algorithm>
#include <cstddef>
#include <heed/core/parallel.hpp>
#include <span>
#include <utility>
#include <vector>

namespace heed::benchmarks {

using heed::peak_flops;

// Seconds in which all threads together read these blocks once; each thread reads its part of each block. A lower bound
// for any work on the same bytes. The speed depends by up to a factor of two on the memory: huge or small pages, and
// its place in the memory of a virtual machine.
double read_seconds(int threads, const std::vector<std::span<const char>>& blocks);
// Bytes per second when reading 1 GB that fits into no cache: the best of several passes.
double read_bandwidth(int threads);

// Round-trip time of a cache line between two processors, in seconds, measured for about 0.02 s. The maximum from the
// first processor to each of the others, for as many processors as threads, since threads that share a loop wait for
// the slowest. Short if they share a cache. 0 if there are fewer than two processors.
double core_to_core(int threads);

// Removes `--dtype f32|bf16` from the beginning of the arguments and returns the dtype; float32 if it is missing.
DType take_dtype(int& argc, char**& argv);

double seconds();  // of a steady clock

// The median of one number or more.
inline double median(std::vector<double> x) {
  const auto middle = x.begin() + static_cast<std::ptrdiff_t>(x.size() / 2);
  std::nth_element(x.begin(), middle, x.end());
  return *middle;
}

// The median time of f in seconds. Runs f for about `budget` seconds, at least three times, after an uncounted first
// run.
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

// Uniform and normal random numbers from consecutive Philox counters, with the same bits on every level.
#pragma once
#include <stdint.h>

namespace heed::kernels {

// A run of Philox blocks: number i of a fill is computed from the words of philox(seed, position + i, stream).
struct RandomBlocks {
  uint64_t seed, stream, position;
};

// Let u be the first 53 of a block's upper 64 bits and v the first 53 of the lower 64 bits, as numbers in [0, 1):
//   uniform: min(low + range * u, max)
//   normal:  mean + deviation * sqrt(-2 log(1 - u)) * cos(2 pi v)     (Box and Muller 1958)
// Both are computed in double and rounded to the type of y; for bfloat16, first to float.
template <class T>
struct RandomFills {
  void (*uniform)(const RandomBlocks& blocks, int64_t n, double low, double range, double max, T* y);
  void (*normal)(const RandomBlocks& blocks, int64_t n, double mean, double deviation, T* y);
};

struct RandomTable {
  RandomFills<float> f32;
  RandomFills<double> f64;
  RandomFills<uint16_t> bf16;
};

const RandomTable& random_table();  // for the level in use

}  // namespace heed::kernels

// Random numbers in lanes: uniform and normal ones of consecutive Philox counters, the same bits on every level.
#pragma once
#include <stdint.h>

namespace heed::kernels {

// A run of Philox blocks: number i of a fill is made of the words of philox(seed, position + i, stream).
struct RandomBlocks {
  uint64_t seed, stream, position;
};

// With u = the first 53 of a block's upper 64 bits and v of its lower ones, as numbers in [0, 1):
//   uniform: min(low + range * u, most)
//   normal:  mean + deviation * sqrt(-2 log(1 - u)) * cos(2 pi v)     (Box and Muller 1958)
// computed in double and rounded to the type of y, by way of float where that is bfloat16.
template <class T>
struct RandomFills {
  void (*uniform)(const RandomBlocks& blocks, int64_t n, double low, double range, double most, T* y);
  void (*normal)(const RandomBlocks& blocks, int64_t n, double mean, double deviation, T* y);
};

struct RandomTable {
  RandomFills<float> f32;
  RandomFills<double> f64;
  RandomFills<uint16_t> bf16;
};

const RandomTable& random_kernels();  // of the level that runs

}  // namespace heed::kernels

// The kernel of dropout, forward and backward: the mask is computed where it is used.
#pragma once
#include <stdint.h>

namespace heed::kernels {

// Elements are taken in groups of 64, which draw from 16 Philox blocks: element 64 g + 16 j + l of the whole tensor is
// kept if word j of the block with counter (position + 16 g + l, stream) and key `seed` is at least `threshold`.
inline constexpr int kDropoutGroup = 64, kDropoutBlocks = 16;

struct DropoutMask {
  uint64_t seed, stream, position;
  uint32_t threshold;
};

struct DropoutTable {
  // y (or, if `accumulate`, what is added to it) is scale * x where kept and 0 elsewhere, for n elements from group
  // `first` on.
  void (*f32)(const DropoutMask& mask, int64_t first, int64_t n, const float* x, float scale, float* y,
              bool accumulate);
  void (*f64)(const DropoutMask& mask, int64_t first, int64_t n, const double* x, double scale, double* y,
              bool accumulate);
};

const DropoutTable& dropout_kernels();  // of the level that runs

}  // namespace heed::kernels

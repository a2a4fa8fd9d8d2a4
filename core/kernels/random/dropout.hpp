// The kernel of dropout, forward and backward. The mask is computed where it is used.
#pragma once
#include <stdint.h>

#include "../dispatch/dispatch.hpp"

namespace heed::kernels {

// Elements are processed in groups of 64, which use 16 Philox blocks. Element 64 g + 16 j + l of the whole tensor is
// kept if word j of the block with counter (position + 16 g + l, stream) and key `seed` is at least `threshold`.
inline constexpr int kDropoutGroup = 64, kDropoutBlocks = 16;

struct DropoutMask {
  uint64_t seed, stream, position;
  uint32_t threshold;
};

// y = (or +=, if `accumulate`) scale * x where kept and 0 elsewhere, for n elements from group `first` on.
template <class T>
using DropoutKernel = void (*)(const DropoutMask& mask, int64_t first, int64_t n, const T* x, T scale, T* y,
                               bool accumulate);

using DropoutTable = FloatTable<DropoutKernel>;
const DropoutTable& dropout_table();  // for the level in use

}  // namespace heed::kernels

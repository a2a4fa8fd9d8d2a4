// Dropout: numbers are kept and scaled, or set to 0, by Philox words of their position.
#include "dropout.hpp"

#include "philox.hpp"

namespace heed::kernels::HEED_LEVEL {
namespace {

// The inner loops are plain: compilers vectorize them with masks.
template <class T>
void apply(const DropoutMask& mask, int64_t first, int64_t n, const T* x, T scale, T* y, bool accumulate) {
  for (int64_t begin = 0; begin < n; begin += kDropoutGroup) {
    alignas(64) uint32_t blocks[4][kDropoutBlocks];
    const uint64_t counter = mask.position + static_cast<uint64_t>(first + begin / kDropoutGroup) * kDropoutBlocks;
    philox_words(
        mask.seed, mask.stream, [=](int l) { return counter + static_cast<uint64_t>(l); }, blocks);
    const uint32_t* words = blocks[0];
    const int64_t size = n - begin < kDropoutGroup ? n - begin : kDropoutGroup;
    const T* from = x + begin;
    T* to = y + begin;
    if (accumulate)
      for (int64_t i = 0; i < size; ++i) to[i] += words[i] >= mask.threshold ? scale * from[i] : T(0);
    else
      for (int64_t i = 0; i < size; ++i) to[i] = words[i] >= mask.threshold ? scale * from[i] : T(0);
  }
}

}  // namespace

extern const DropoutTable dropout_table;
const DropoutTable dropout_table = {apply<float>, apply<double>};

}  // namespace heed::kernels::HEED_LEVEL

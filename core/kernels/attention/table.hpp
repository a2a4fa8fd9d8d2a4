// The kernels of one format. Included only by attention kernels.
#pragma once
#include "backward.hpp"
#include "decode.hpp"

namespace heed::kernels::HEED_LEVEL {

template <class T, class S, class P>
constexpr AttentionKernels<T, S> attention_kernels_of() {
  using namespace attention;
  using F = Format<T, S, P>;
  return {{kLanes<T>, kTiles * kLanes<T>, kBackLanes<T>, kBackKeys, kDecodeKeys},
          scratch_size<T, ForwardScratch<F>>,
          scratch_size<T, BackwardScratch<F>>,
          forward<F>,
          backward<F>,
          tile_size<T, S>,
          combine<T, S>,
          partial_size<T, S>,
          decode<T, S>,
          join<T, S>};
}

}  // namespace heed::kernels::HEED_LEVEL

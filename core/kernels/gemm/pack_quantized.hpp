// Panels of a quantized b, unpacked one at a time. Included only by *.kernel.cpp.
#pragma once
#include "block.hpp"
#include "blocks_of_32.hpp"

namespace heed::kernels::HEED_LEVEL {

// pack_b() for a quantized b. A panel of a block of k is unpacked to float32, and packed from there.
template <class P>
inline void pack_quantized(const GemmProblem& g, long begin, long end, void* packed) {
  constexpr long stride = kBlockDepth<P> * kStep<P> + 16;  // the gap keeps rows from sharing few sets of L1
  alignas(64) float numbers[kPanel<P> * stride];
  const DepthBlocks<P> blocks(g.k);
  const auto* b = static_cast<const uint8_t*>(g.b);
  auto* out = static_cast<typename Product<P>::Element*>(packed);
  with_blocks(g.b_blocks, [&]<class Q>(Q) {
    for (long q = 0; q < blocks.count; ++q)
      for (long j = begin; j < end; ++j) {
        const long column = j * kPanel<P>, first = blocks.first(q) * kStep<P>, depth = blocks.depth(q),
                   k = g.k - first < depth * kStep<P> ? g.k - first : depth * kStep<P>,
                   lanes = g.n - column < kPanel<P> ? g.n - column : kPanel<P>,
                   at = g.b_first + column * g.b_column + first * g.b_row;
        GemmProblem panel = g;
        panel.n = lanes, panel.k = k, panel.b = numbers;
        if (g.b_row == 1) {
          panel.b_column = stride;
          for (long i = 0; i < lanes; ++i) unpack_numbers<Q>(b, at + i * g.b_column, k, numbers + i * stride);
        } else {
          panel.b_row = kPanel<P>;
          for (long p = 0; p < k; ++p) unpack_numbers<Q>(b, at + p * g.b_row, lanes, numbers + p * kPanel<P>);
        }
        Operands<P, float>::pack_panel(panel, 0, 0, depth, out + panel_offset(g, blocks, q, j));
      }
  });
}

}  // namespace heed::kernels::HEED_LEVEL

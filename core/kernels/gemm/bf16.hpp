// Packing and blocks of bf16 products. Included only by kernels of products.
#pragma once
#include "block.hpp"
#include "few_rows.hpp"
#include "operands_pairs.hpp"

namespace heed::kernels::HEED_LEVEL {

// The elements that tiles multiply. Products of few rows multiply pairs on every level, since they wait for memory.
#if defined(__AVX512F__)
using Bf16Tiles = Bf16Pairs;
#else
using Bf16Tiles = Bf16Numbers;
#endif

inline void pack_bf16(const GemmProblem& g, long begin, long end, void* packed) {
  if (g.b_bf16)
    pack_b<Bf16Tiles, uint16_t>(g, begin, end, packed);
  else
    pack_b<Bf16Tiles, float>(g, begin, end, packed);
}
inline void block_bf16(const GemmProblem& g, long row, long rows, long begin, long end, const void* packed) {
  if (g.a_bf16)
    block<Bf16Tiles, uint16_t>(g, row, rows, begin, end, packed);
  else
    block<Bf16Tiles, float>(g, row, rows, begin, end, packed);
}
inline void pack_few_bf16(const GemmProblem& g, void* out) {
  g.a_bf16 ? pack_few<Bf16Pairs, uint16_t>(g, out) : pack_few<Bf16Pairs, float>(g, out);
}

inline constexpr GemmKind kind_bf16 = kind<Bf16Tiles>(pack_bf16, block_bf16, few_by_columns<Bf16Pairs, uint16_t>,
                                                      pack_few_bf16, few_in_place<Bf16Pairs, uint16_t>);

}  // namespace heed::kernels::HEED_LEVEL

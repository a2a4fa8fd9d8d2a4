// Products whose operands may be bf16, or b quantized, in memory. Included only by kernels of products.
#pragma once
#include "block.hpp"
#include "few_rows.hpp"
#include "operands_pairs.hpp"
#include "pack_quantized.hpp"

namespace heed::kernels::HEED_LEVEL {

// The elements that tiles multiply. Products of few rows multiply pairs on every level, since they wait for memory.
#if defined(__AVX512F__)
using Bf16Tiles = Bf16Pairs;
#else
using Bf16Tiles = Bf16Numbers;
#endif

// Calls f(S{}) with the type of an operand in memory: uint16_t for bf16, else float.
template <class F>
inline void with_stored(bool bf16, const F& f) {
  if (bf16)
    f(uint16_t{});
  else
    f(float{});
}

// Functions of a GemmKind for products P.
template <class P>
inline void pack_stored(const GemmProblem& g, long begin, long end, void* packed) {
  if (g.b_blocks != Blocks::none) return pack_quantized<P>(g, begin, end, packed);
  with_stored(g.b_bf16, [&]<class S>(S) { pack_b<P, S>(g, begin, end, packed); });
}
template <class P>
inline void block_stored(const GemmProblem& g, long row, long rows, long begin, long end, const void* packed) {
  with_stored(g.a_bf16, [&]<class S>(S) { block<P, S>(g, row, rows, begin, end, packed); });
}
template <class P>
inline void pack_few_stored(const GemmProblem& g, void* out) {
  with_stored(g.a_bf16, [&]<class S>(S) { pack_few<P, S>(g, out); });
}

inline constexpr GemmKind kind_bf16 =
    kind<Bf16Tiles>(pack_stored<Bf16Tiles>, block_stored<Bf16Tiles>, few_by_columns<Bf16Pairs, uint16_t>,
                    pack_few_stored<Bf16Pairs>, few_in_place<Bf16Pairs, uint16_t>);

}  // namespace heed::kernels::HEED_LEVEL

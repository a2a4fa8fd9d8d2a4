// How products of pairs of bf16 pack their operands and which blocks they run. Included only by kernels of products.
#pragma once
#include "gemm_block.hpp"
#include "gemm_few.hpp"

namespace heed::kernels::HEED_LEVEL {

inline void pack_pairs(const GemmProblem& g, long begin, long end, void* packed) {
  if (g.b_bf16)
    pack_b<Bf16Pairs, uint16_t>(g, begin, end, packed);
  else
    pack_b<Bf16Pairs, float>(g, begin, end, packed);
}
inline void multiply_pairs(const GemmProblem& g, long row, long rows, long begin, long end, const void* packed) {
  if (g.a_bf16)
    block<Bf16Pairs, uint16_t>(g, row, rows, begin, end, packed);
  else
    block<Bf16Pairs, float>(g, row, rows, begin, end, packed);
}
inline void pack_few_pairs(const GemmProblem& g, void* out) {
  g.a_bf16 ? pack_few<Bf16Pairs, uint16_t>(g, out) : pack_few<Bf16Pairs, float>(g, out);
}

inline constexpr GemmKind kind_pairs =
    kind<Bf16Pairs>(pack_pairs, multiply_pairs, few_by_columns<Bf16Pairs, uint16_t>, pack_few_pairs);

}  // namespace heed::kernels::HEED_LEVEL

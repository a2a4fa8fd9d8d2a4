#include "gemm_bf16.hpp"

#include "gemm_block.hpp"
#include "gemm_few.hpp"

namespace heed::kernels::HEED_LEVEL {
namespace {

void pack(const GemmProblem& g, long begin, long end, void* packed) {
  if (g.b_bf16)
    pack_b<Bf16Pairs, uint16_t>(g, begin, end, packed);
  else
    pack_b<Bf16Pairs, float>(g, begin, end, packed);
}
void multiply(const GemmProblem& g, long row, long rows, long begin, long end, const void* packed) {
  if (g.a_bf16)
    block<Bf16Pairs, uint16_t>(g, row, rows, begin, end, packed);
  else
    block<Bf16Pairs, float>(g, row, rows, begin, end, packed);
}
void pack_few_rows(const GemmProblem& g, void* out) {
  g.a_bf16 ? pack_few<Bf16Pairs, uint16_t>(g, out) : pack_few<Bf16Pairs, float>(g, out);
}

constexpr GemmKind product = kind<Bf16Pairs>(pack, multiply, few_by_columns<Bf16Pairs, uint16_t>, pack_few_rows);

}  // namespace

extern const Bf16Table bf16_table;
const Bf16Table bf16_table = {product};

}  // namespace heed::kernels::HEED_LEVEL

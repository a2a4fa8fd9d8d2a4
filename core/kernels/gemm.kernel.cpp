// The kinds of matrix products of this level: how each packs its operands and which blocks it runs.
#include "gemm_block.hpp"
#include "gemm_few.hpp"

namespace heed::kernels::HEED_LEVEL {
namespace {

// float32 operands may each be bf16 in memory, or be rounded to it.
void pack_float(const GemmProblem& g, long begin, long end, void* packed) {
  if (g.b_bf16)
    pack_b<float, uint16_t>(g, begin, end, packed);
  else if (g.round)
    pack_b<float, RoundedFloat>(g, begin, end, packed);
  else
    pack_b<float, float>(g, begin, end, packed);
}
void block_float(const GemmProblem& g, long row, long rows, long begin, long end, const void* packed) {
  if (g.a_bf16)
    block<float, uint16_t>(g, row, rows, begin, end, packed);
  else if (g.round)
    block<float, RoundedFloat>(g, row, rows, begin, end, packed);
  else
    block<float, float>(g, row, rows, begin, end, packed);
}
void few_float(const GemmProblem& g, long begin, long end) {
  if (g.a_bf16 && g.b_bf16)
    few_rows_as<float, uint16_t, uint16_t>(g, begin, end);
  else if (g.a_bf16)
    few_rows_as<float, uint16_t, float>(g, begin, end);
  else if (g.b_bf16)
    few_rows_as<float, float, uint16_t>(g, begin, end);
  else
    few_rows_as<float, float, float>(g, begin, end);
}

constexpr GemmKind kind_float = kind<float>(pack_float, block_float, few_float);
constexpr GemmKind kind_double =
    kind<double>(pack_b<double, double>, block<double, double>, few_rows_as<double, double, double>);

}  // namespace

extern const GemmTable gemm_table;
const GemmTable gemm_table = {kind_float, kind_double};

}  // namespace heed::kernels::HEED_LEVEL

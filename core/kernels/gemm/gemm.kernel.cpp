// The kinds of matrix products of this level: how each packs its operands and which blocks it computes.
#include "bf16.hpp"

namespace heed::kernels::HEED_LEVEL {
namespace {

// Each float32 operand may be bf16 in memory.
void pack_float(const GemmProblem& g, long begin, long end, void* packed) {
  if (g.b_bf16)
    pack_b<float, uint16_t>(g, begin, end, packed);
  else
    pack_b<float, float>(g, begin, end, packed);
}
void block_float(const GemmProblem& g, long row, long rows, long begin, long end, const void* packed) {
  if (g.a_bf16)
    block<float, uint16_t>(g, row, rows, begin, end, packed);
  else
    block<float, float>(g, row, rows, begin, end, packed);
}
void few_float(const GemmProblem& g, long begin, long end) {
  if (g.b_row == 1)
    g.b_bf16 ? few_by_columns<float, uint16_t>(g, begin, end) : few_by_columns<float, float>(g, begin, end);
  else if (g.a_bf16 && g.b_bf16)
    few_by_rows<float, uint16_t, uint16_t>(g, begin, end);
  else if (g.a_bf16)
    few_by_rows<float, uint16_t, float>(g, begin, end);
  else if (g.b_bf16)
    few_by_rows<float, float, uint16_t>(g, begin, end);
  else
    few_by_rows<float, float, float>(g, begin, end);
}
void few_double(const GemmProblem& g, long begin, long end) {
  g.b_row == 1 ? few_by_columns<double, double>(g, begin, end) : few_by_rows<double, double, double>(g, begin, end);
}
void pack_few_float(const GemmProblem& g, void* out) {
  if (g.a_bf16)
    pack_few<float, uint16_t>(g, out);
  else
    pack_few<float, float>(g, out);
}

constexpr GemmKind kind_float =
    kind<float>(pack_float, block_float, few_float, pack_few_float, few_in_place<float, float>);
constexpr GemmKind kind_double = kind<double>(pack_b<double, double>, block<double, double>, few_double,
                                              pack_few<double, double>, few_in_place<double, double>);

}  // namespace

extern const GemmTable gemm_table;
const GemmTable gemm_table = {kind_float, kind_double, kind_bf16};

}  // namespace heed::kernels::HEED_LEVEL

// The kinds of matrix products of this level: how each packs its operands and which blocks it computes.
#include "bf16.hpp"
#include "few_quantized.hpp"

namespace heed::kernels::HEED_LEVEL {
namespace {

// Each float32 operand may be bf16 in memory, and b quantized.
void few_float(const GemmProblem& g, long begin, long end) {
  if (g.b_blocks != Blocks::none) return few_quantized(g, begin, end);
  with_stored(g.b_bf16, [&]<class B>(B) {
    if (g.b_row == 1) return few_by_columns<float, B>(g, begin, end);
    with_stored(g.a_bf16, [&]<class A>(A) { few_by_rows<float, A, B>(g, begin, end); });
  });
}
void few_double(const GemmProblem& g, long begin, long end) {
  g.b_row == 1 ? few_by_columns<double, double>(g, begin, end) : few_by_rows<double, double, double>(g, begin, end);
}

constexpr GemmKind kind_float =
    kind<float>(pack_stored<float>, block_stored<float>, few_float, pack_few_stored<float>, few_in_place<float, float>);
constexpr GemmKind kind_double = kind<double>(pack_b<double, double>, block<double, double>, few_double,
                                              pack_few<double, double>, few_in_place<double, double>);

}  // namespace

extern const GemmTable gemm_table;
const GemmTable gemm_table = {kind_float, kind_double, kind_bf16};

}  // namespace heed::kernels::HEED_LEVEL

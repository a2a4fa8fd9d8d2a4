// Products of bf16 by the instruction for pairs, for the avx512_bf16 level.
#include "bf16.hpp"

namespace heed::kernels::HEED_LEVEL {

extern const GemmKind gemm_dots;
const GemmKind gemm_dots = kind_bf16;

}  // namespace heed::kernels::HEED_LEVEL

#include "gemm_pairs.hpp"

namespace heed::kernels::HEED_LEVEL {

extern const GemmKind gemm_dots;
const GemmKind gemm_dots = kind_pairs;

}  // namespace heed::kernels::HEED_LEVEL

#include <heed/core/kernels/dispatch.hpp>
#include <heed/core/kernels/gemm_bf16.hpp>
#include <heed/core/kernels/gemm_peak.hpp>

namespace heed::kernels {

HEED_KERNEL_TABLE(PeakTable, gemm_peak)

#ifdef HEED_HAS_avx512_bf16
namespace avx512_bf16 {
extern const Bf16Table bf16_table;
}
const Bf16Table* bf16_table() { return level() == Level::avx512_bf16 ? &avx512_bf16::bf16_table : nullptr; }
#else
const Bf16Table* bf16_table() { return nullptr; }
#endif

}  // namespace heed::kernels

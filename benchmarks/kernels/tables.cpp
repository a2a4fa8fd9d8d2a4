// The loops of the level that runs.
#include <heed/core/kernels/table.hpp>

#include "benchmarks/kernels/peak.hpp"

namespace heed::kernels {

HEED_KERNEL_TABLE(PeakTable, peak_loops)

#ifdef HEED_HAS_avx512_bf16
namespace avx512_bf16 {
extern const PeakLoop bf16_peak;
}
PeakLoop bf16_peak_loop() { return level() == Level::avx512_bf16 ? avx512_bf16::bf16_peak : nullptr; }
#else
PeakLoop bf16_peak_loop() { return nullptr; }
#endif

}  // namespace heed::kernels

#include <heed/core/kernels/dispatch.hpp>
#include <heed/core/kernels/gemm_peak.hpp>

namespace heed::kernels {
HEED_KERNEL_TABLE_BF16(PeakTable, gemm_peak)
}

#include <heed/core/kernels/dispatch.hpp>
#include <heed/core/kernels/gemm_probe.hpp>

namespace heed::kernels {
HEED_KERNEL_TABLE_BF16(BlockProbes, block_probes)
}

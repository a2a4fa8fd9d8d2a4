#include <heed/core/kernels/dispatch.hpp>
#include <heed/core/kernels/simd_probe.hpp>

namespace heed::kernels {
HEED_KERNEL_TABLE(SimdProbes, simd_probes)
}

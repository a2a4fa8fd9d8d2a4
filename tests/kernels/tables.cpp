// The dispatch tables of kernels that only tests call.
#include <heed/core/kernels/dispatch/table.hpp>

#include "tests/kernels/product_sums.hpp"
#include "tests/kernels/simd_probe.hpp"

namespace heed::kernels {

HEED_KERNEL_TABLE(ProductSums, product_sums)
HEED_KERNEL_TABLE(SimdProbes, simd_probes)

}  // namespace heed::kernels

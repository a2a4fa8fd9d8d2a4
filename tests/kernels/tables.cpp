// The tables of what tests alone call of the kernels.
#include <heed/core/kernels/table.hpp>

#include "tests/kernels/block_products.hpp"
#include "tests/kernels/simd_probe.hpp"

namespace heed::kernels {

HEED_KERNEL_TABLE(BlockProducts, block_products)
HEED_KERNEL_TABLE(SimdProbes, simd_probes)

}  // namespace heed::kernels

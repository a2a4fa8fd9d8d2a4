#include <heed/core/kernels/dispatch.hpp>
#include <heed/core/kernels/gemm_micro_table.hpp>

namespace heed::kernels {
HEED_KERNEL_TABLE(BlockProducts, block_products)
}

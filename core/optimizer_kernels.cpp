#include <heed/core/kernels/dispatch.hpp>
#include <heed/core/kernels/optimizer.hpp>

namespace heed::kernels {
HEED_KERNEL_TABLE(OptimizerTable, optimizer_kernels)
}

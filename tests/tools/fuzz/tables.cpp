// The dispatch tables of the kernels that convert numbers. Parsers call no others.
#include <heed/core/kernels/dispatch/table.hpp>
#include <heed/core/kernels/elementwise/elementwise.hpp>

namespace heed::kernels {

HEED_KERNEL_TABLE(ElementwiseTable, elementwise_table)

}  // namespace heed::kernels

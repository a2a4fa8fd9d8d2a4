// The kernel tables of the fused ops.
#include <heed/core/kernels/dispatch.hpp>
#include <heed/core/kernels/dropout.hpp>
#include <heed/core/kernels/embedding.hpp>
#include <heed/core/kernels/loss_cross_entropy.hpp>
#include <heed/core/kernels/loss_pointwise.hpp>
#include <heed/core/kernels/norm.hpp>

namespace heed::kernels {
HEED_KERNEL_TABLE(NormTable, norm_kernels)
HEED_KERNEL_TABLE(CrossEntropyTable, cross_entropy_kernels)
HEED_KERNEL_TABLE(PointwiseTable, pointwise_kernels)
HEED_KERNEL_TABLE(EmbeddingTable, embedding_kernels)
HEED_KERNEL_TABLE(DropoutTable, dropout_kernels)
}  // namespace heed::kernels

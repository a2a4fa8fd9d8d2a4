// The tables of all kernel families.
#include <heed/core/kernels/additive_attention/additive_attention.hpp>
#include <heed/core/kernels/attention/attention.hpp>
#include <heed/core/kernels/attention/rope.hpp>
#include <heed/core/kernels/attention/score_functions.hpp>
#include <heed/core/kernels/attention/sparse.hpp>
#include <heed/core/kernels/depthwise.hpp>
#include <heed/core/kernels/dispatch/table.hpp>
#include <heed/core/kernels/elementwise/activation.hpp>
#include <heed/core/kernels/elementwise/elementwise.hpp>
#include <heed/core/kernels/embedding.hpp>
#include <heed/core/kernels/gated_attention/gated_attention.hpp>
#include <heed/core/kernels/gemm/gemm.hpp>
#include <heed/core/kernels/linear_attention/linear_attention.hpp>
#include <heed/core/kernels/linear_attention/log_attention.hpp>
#include <heed/core/kernels/linear_attention/products_of_two.hpp>
#include <heed/core/kernels/losses/cross_entropy.hpp>
#include <heed/core/kernels/losses/ctc.hpp>
#include <heed/core/kernels/losses/pointwise.hpp>
#include <heed/core/kernels/optimizer.hpp>
#include <heed/core/kernels/peak.hpp>
#include <heed/core/kernels/random/dropout.hpp>
#include <heed/core/kernels/random/random.hpp>
#include <heed/core/kernels/recurrent.hpp>
#include <heed/core/kernels/reduce/norm.hpp>
#include <heed/core/kernels/reduce/reduce.hpp>
#include <heed/core/kernels/reduce/softmax.hpp>

namespace heed::kernels {

HEED_KERNEL_TABLE(ActivationTable, activation_table)
HEED_KERNEL_TABLE(AdditiveTable, additive_attention_table)
HEED_KERNEL_TABLE(AttentionTable, attention_table)
HEED_KERNEL_TABLE(CrossEntropyTable, cross_entropy_table)
HEED_KERNEL_TABLE(CtcTable, ctc_table)
HEED_KERNEL_TABLE(DepthwiseTable, depthwise_table)
HEED_KERNEL_TABLE(DropoutTable, dropout_table)
HEED_KERNEL_TABLE(ElementwiseTable, elementwise_table)
HEED_KERNEL_TABLE(EmbeddingTable, embedding_table)
HEED_KERNEL_TABLE(GatedTable, gated_attention_table)
HEED_KERNEL_TABLE(GemmTable, gemm_table)
HEED_KERNEL_TABLE(LinearFeatureTable, linear_attention_table)
HEED_KERNEL_TABLE(LogTable, log_attention_table)
HEED_KERNEL_TABLE(NormTable, norm_table)
HEED_KERNEL_TABLE(OptimizerTable, optimizer_table)
HEED_KERNEL_TABLE(PeakTable, peak_table)
HEED_KERNEL_TABLE(PointwiseTable, pointwise_table)
HEED_KERNEL_TABLE(ProductsOfTwoTable, products_of_two_table)
HEED_KERNEL_TABLE(RandomTable, random_table)
HEED_KERNEL_TABLE(RecurrentTable, recurrent_table)
HEED_KERNEL_TABLE(ReduceTable, reduce_table)
HEED_KERNEL_TABLE(RopeTable, rope_table)
HEED_KERNEL_TABLE(ScoreFunctionTable, score_function_table)
HEED_KERNEL_TABLE(SoftmaxTable, softmax_table)
HEED_KERNEL_TABLE(SparseTable, sparse_attention_table)

// Products of pairs of bf16 by the machine's instruction, and their peak, on the level that has the instruction.
#ifdef HEED_HAS_avx512_bf16
namespace avx512_bf16 {
extern const GemmKind gemm_dots;
extern const Bf16AttentionKernels attention_dots;
extern const PeakLoop bf16_peak;
}
static bool has_dots() { return level() == Level::avx512_bf16; }
const GemmKind& gemm_bf16() { return has_dots() ? avx512_bf16::gemm_dots : gemm_table().bf16; }
const Bf16AttentionKernels& attention_bf16() {
  return has_dots() ? avx512_bf16::attention_dots : attention_table().bf16;
}
PeakLoop bf16_peak_loop() { return has_dots() ? avx512_bf16::bf16_peak : nullptr; }
#else
const GemmKind& gemm_bf16() { return gemm_table().bf16; }
const Bf16AttentionKernels& attention_bf16() { return attention_table().bf16; }
PeakLoop bf16_peak_loop() { return nullptr; }
#endif

}  // namespace heed::kernels

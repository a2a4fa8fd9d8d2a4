// Softmax attention of bf16 by the instruction for pairs, for the avx512_bf16 level.
#include "table.hpp"

namespace heed::kernels::HEED_LEVEL {

extern const Bf16AttentionKernels attention_dots;
const Bf16AttentionKernels attention_dots = attention_kernels_of<float, uint16_t, Bf16Pairs>();

}  // namespace heed::kernels::HEED_LEVEL

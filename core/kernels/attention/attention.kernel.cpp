// Softmax attention at one level, for float, double and bf16.
#include "table.hpp"

namespace heed::kernels::HEED_LEVEL {

extern const AttentionTable attention_table;
const AttentionTable attention_table = {attention_kernels_of<float, float, float>(),
                                        attention_kernels_of<double, double, double>(),
                                        attention_kernels_of<float, uint16_t, Bf16Pairs>()};

}  // namespace heed::kernels::HEED_LEVEL

#include "gemm_bf16.hpp"

#include "gemm_block.hpp"

namespace heed::kernels::HEED_LEVEL {
namespace {

constexpr GemmKind product = kind<Bf16Pairs>(pack_b<Bf16Pairs, uint16_t>, block<Bf16Pairs, uint16_t>, nullptr);

}  // namespace

extern const Bf16Table bf16_table;
const Bf16Table bf16_table = {product};

}  // namespace heed::kernels::HEED_LEVEL

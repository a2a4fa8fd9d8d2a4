// The dot product of pairs of bf16 (VDPBF16PS): what avx512_bf16 has beyond avx512.
#pragma once
#include "gemm.hpp"

namespace heed::kernels {

struct Bf16Table {
  GemmKind product;  // operands bf16, or float32 that is rounded; few_rows: b is bf16, and b_row is 1
};

const Bf16Table* bf16_table();  // null where the level that runs has none

}  // namespace heed::kernels

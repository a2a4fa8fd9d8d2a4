// Which instruction set runs.
#pragma once

namespace heed {

// "baseline", "avx2", "avx512" or "avx512_bf16": the best that the machine has, or what HEED_ARCH names. Throws Error at
// first use where HEED_ARCH names none that is there.
const char* arch();

}  // namespace heed

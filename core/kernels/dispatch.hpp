// Which instruction set runs. Each kernel family declares a struct of function pointers; every level fills one, in a
// namespace of its own; at start the best that the machine has is taken, or the one that HEED_ARCH names.
#pragma once

namespace heed::kernels {

enum class Level { baseline, avx2, avx512, avx512_bf16 };
inline constexpr int kLevels = 4;

const char* name_of(Level level);
bool available(Level level);  // compiled in, and the machine and system have it
Level level();                // what runs; throws Error at first use where HEED_ARCH names no available level
void set_level(Level level);  // for tests; throws Error where unavailable

// A family's tables, one a level, null where a level was not compiled; a missing one falls back to the level below.
template <class Table> const Table& pick(const Table* const (&tables)[kLevels]) {
  int i = static_cast<int>(level());
  while (i > 0 && tables[i] == nullptr) --i;
  return *tables[i];
}

}  // namespace heed::kernels

namespace heed {
const char* arch();  // "baseline", "avx2", "avx512" or "avx512_bf16"
}

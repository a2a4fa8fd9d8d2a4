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

// HEED_KERNEL_TABLE(GemmTable, gemm_table), once a family, in namespace heed::kernels of a plain .cpp, defines
// `const GemmTable& gemm_table()` from the objects of that name in the namespaces of the levels (baseline::gemm_table,
// avx2::gemm_table, ...).
// The build defines HEED_HAS_<level> for what it compiles.
#ifdef HEED_HAS_avx2
#define HEED_DECLARE_X86(Table, name) \
  namespace avx2 { extern const Table name; } \
  namespace avx512 { extern const Table name; }
#define HEED_TABLES(name) &baseline::name, &avx2::name, &avx512::name, nullptr
#else
#define HEED_DECLARE_X86(Table, name)
#define HEED_TABLES(name) &baseline::name, nullptr, nullptr, nullptr
#endif
#define HEED_KERNEL_TABLE(Table, name) \
  namespace baseline { extern const Table name; } \
  HEED_DECLARE_X86(Table, name) \
  const Table& name() { \
    static constexpr const Table* tables[kLevels] = {HEED_TABLES(name)}; \
    return pick(tables); \
  }

namespace heed {
const char* arch();  // "baseline", "avx2", "avx512" or "avx512_bf16"
}

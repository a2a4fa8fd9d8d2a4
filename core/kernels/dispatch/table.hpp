// HEED_KERNEL_TABLE, which defines the function that returns a kernel family's table. Each level defines an object of
// the same name in its namespace: baseline::gemm_table, avx2::gemm_table, ... The build defines HEED_HAS_<level> for
// each level that it compiles.
#pragma once
#include <heed/core/kernels/dispatch/dispatch.hpp>

namespace heed::kernels {

// The table of the level in use. A missing level falls back to the one below.
template <class Table>
static const Table& pick(const Table* const (&tables)[kLevels]) {
  int i = static_cast<int>(level());
  while (i > 0 && tables[i] == nullptr) --i;
  return *tables[i];
}

}  // namespace heed::kernels

// HEED_<LEVEL>(address): the address of a level's table, or null if the build does not compile the level.
#ifdef HEED_HAS_baseline
#define HEED_BASELINE(address) address
#else
#define HEED_BASELINE(address) nullptr
#endif
#ifdef HEED_HAS_avx2
#define HEED_AVX2(address) address
#else
#define HEED_AVX2(address) nullptr
#endif
#ifdef HEED_HAS_avx512
#define HEED_AVX512(address) address
#else
#define HEED_AVX512(address) nullptr
#endif
// Defines `const Table& name()`.
// clang-format off
#define HEED_KERNEL_TABLE(Table, name) \
  namespace baseline { extern const Table name; } \
  namespace avx2 { extern const Table name; } \
  namespace avx512 { extern const Table name; } \
  const Table& name() { \
    static constexpr const Table* tables[kLevels] = {HEED_BASELINE(&baseline::name), HEED_AVX2(&avx2::name), \
                                                     HEED_AVX512(&avx512::name), nullptr}; \
    return pick(tables); \
  }
// clang-format on

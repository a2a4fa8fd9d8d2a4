// HEED_KERNEL_TABLE, which defines the function that returns a kernel family's table. Each level defines an object of
// the same name in its namespace: baseline::gemm_table, avx2::gemm_table, ... The build defines HEED_HAS_<level> for
// each level that it compiles.
#pragma once
#include <heed/core/kernels/dispatch.hpp>

namespace heed::kernels {

// The table of the level in use. A missing level falls back to the one below.
template <class Table>
static const Table& pick(const Table* const (&tables)[kLevels]) {
  int i = static_cast<int>(level());
  while (i > 0 && tables[i] == nullptr) --i;
  return *tables[i];
}

}  // namespace heed::kernels

#ifdef HEED_HAS_avx2
#define HEED_DECLARE_X86(Table, name) \
  namespace avx2 { extern const Table name; } \
  namespace avx512 { extern const Table name; }
#define HEED_TABLES(name) &baseline::name, &avx2::name, &avx512::name, nullptr
#else
#define HEED_DECLARE_X86(Table, name)
#define HEED_TABLES(name) &baseline::name, nullptr, nullptr, nullptr
#endif
// Defines `const Table& name()`.
#define HEED_KERNEL_TABLE(Table, name) \
  namespace baseline { extern const Table name; } \
  HEED_DECLARE_X86(Table, name) \
  const Table& name() { \
    static constexpr const Table* tables[kLevels] = {HEED_TABLES(name)}; \
    return pick(tables); \
  }

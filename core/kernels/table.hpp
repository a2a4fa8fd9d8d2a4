// Makes the function that gives a kernel family's table, from the objects of one name in the namespaces of the levels:
// baseline::gemm_table, avx2::gemm_table, ... The build defines HEED_HAS_<level> for what it compiles.
#pragma once
#include <heed/core/kernels/dispatch.hpp>

namespace heed::kernels {

// A missing level falls back to the one below.
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

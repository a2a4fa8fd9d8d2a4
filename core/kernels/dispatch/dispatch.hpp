// Instruction set levels and the level in use. Each kernel family declares a struct of function pointers, its table.
// Each level fills one table, in the level's namespace (tables.cpp lists the tables). At first use the best available
// level is chosen, or the level that HEED_ARCH names.
#pragma once

namespace heed::kernels {

enum class Level { baseline, avx2, avx512, avx512_bf16 };
inline constexpr int kLevels = 4;

const char* name_of(Level level);
bool available(Level level);  // compiled in, and supported by the processor and the system
Level level();                // the level in use; throws Error at first use if HEED_ARCH names no available level
void set_level(Level level);  // for tests; throws Error if `level` is not available

// Whether a level computes a multiply-add with one rounding. All such levels give the same bits on every machine. The
// baseline of x86-64 gives other bits.
bool fuses(Level level);
bool same_bits(const char* name, const char* other);  // whether two levels do, on this machine or others

// The table of a family whose kernels are templates on float and double.
template <template <class> class Kernels>
struct FloatTable {
  Kernels<float> f32;
  Kernels<double> f64;
};

// The entry of a table for T: f32 for float, f64 for double.
template <class T, class Table>
const auto& of(const Table& table) {
  if constexpr (sizeof(T) == 4)
    return table.f32;
  else
    return table.f64;
}

}  // namespace heed::kernels

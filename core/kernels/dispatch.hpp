// Which instruction set runs. Each kernel family declares a struct of function pointers; every level fills one, in a
// namespace of its own (tables.cpp lists them); at start the best that the machine has is taken, or the one that
// HEED_ARCH names.
#pragma once

namespace heed::kernels {

enum class Level { baseline, avx2, avx512, avx512_bf16 };
inline constexpr int kLevels = 4;

const char* name_of(Level level);
bool available(Level level);  // compiled in, and the machine and system have it
Level level();                // what runs; throws Error at first use where HEED_ARCH names no available level
void set_level(Level level);  // for tests; throws Error where unavailable

// Whether a level multiplies and adds in one rounding. All that do, on any machine, give the same bits; the baseline of
// x86-64 has bits of its own.
bool fuses(Level level);
bool same_bits(const char* name, const char* other);  // of levels, of this machine or another

// The table of a family whose kernels are templates on float and double.
template <template <class> class Kernels>
struct FloatTable {
  Kernels<float> f32;
  Kernels<double> f64;
};

// Of a table with an entry for float (f32) and one for double (f64), that of T.
template <class T, class Table>
const auto& of(const Table& table) {
  if constexpr (sizeof(T) == 4)
    return table.f32;
  else
    return table.f64;
}

}  // namespace heed::kernels

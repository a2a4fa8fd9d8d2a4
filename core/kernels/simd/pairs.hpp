// Pairs of bf16 and sums of their products. A pair is two neighbours in memory; the earlier number is in the lower half
// of 32 bits. Sums are those of the instruction VDPBF16PS: sum = a1 b1 + sum, then sum = a0 b0 + sum, each rounded
// once. Inputs and results below 2^-126 count as 0. Levels without the instruction use two multiply-adds;
// tests/core/kernels/simd/pairs_test.cpp compares them with the instruction. Included by simd.hpp.
#pragma once

namespace heed::kernels::HEED_LEVEL {

struct Bf16Pairs {};  // the tag of products of pairs
using Pairs = Batch<uint32_t>;

inline Pairs load_pairs(const void* p) { return Pairs::load_unaligned(static_cast<const uint32_t*>(p)); }
inline void store_pairs(void* p, Pairs v) { v.store_unaligned(static_cast<uint32_t*>(p)); }

// The first n numbers, zeros after them. n may be negative, or more than a vector holds.
inline Pairs load_pairs_part(const uint16_t* p, long n) {
  constexpr long all = 2 * kWidth<float>;
  if (n >= all) return load_pairs(p);
#if defined(__AVX512F__)
  return _mm512_maskz_loadu_epi16((1u << (n < 0 ? 0 : n)) - 1u, p);
#else
  alignas(64) uint16_t number[all] = {};
  if (n > 0) memcpy(number, p, static_cast<size_t>(n) * sizeof *p);
  return load_pairs(number);
#endif
}
inline void store_pairs_part(uint16_t* p, Pairs v, long n) {
  constexpr long all = 2 * kWidth<float>;
  if (n >= all) return store_pairs(p, v);
#if defined(__AVX512F__)
  _mm512_mask_storeu_epi16(p, (1u << n) - 1u, v);
#else
  alignas(64) uint16_t number[all];
  store_pairs(number, v);
  memcpy(p, number, static_cast<size_t>(n) * sizeof *p);
#endif
}

// The earlier and the later numbers of pairs, as float32.
inline Batch<float> earlier_of(Pairs v) { return bits_as<float>(v << 16); }
inline Batch<float> later_of(Pairs v) { return bits_as<float>(v & Pairs(0xffff0000u)); }

// Pairs of numbers that bf16 represents exactly.
inline Pairs pairs_of(Batch<float> earlier, Batch<float> later) {
  return (bits_as<uint32_t>(earlier) >> 16) | bits_as<uint32_t>(later);
}

// x rounded as the machine's instruction rounds: numbers below 2^-126 become 0.
inline Batch<float> rounded_by_machine(Batch<float> x) {
  const Batch<float> zero = xsimd::copysign(Batch<float>(0.f), x);
  return select(abs(x) < Batch<float>(0x1p-126f), zero, rounded(x));
}
inline uint16_t bf16_by_machine(float x) {
  const uint32_t u = __builtin_bit_cast(uint32_t, x);
  return (u & 0x7f800000u) == 0 ? static_cast<uint16_t>(u >> 16 & 0x8000u) : float_to_bf16(x);
}
inline uint16_t bf16_by_machine(uint16_t bf16) { return bf16; }
inline float rounded_by_machine(float x) { return bf16_to_float(bf16_by_machine(x)); }

// Rounds two vectors of consecutive numbers to pairs of neighbours.
inline Pairs pairs_of_neighbours(Batch<float> low, Batch<float> high) {
#if defined(__AVX512BF16__)
  return __builtin_bit_cast(__m512i, _mm512_cvtne2ps_pbh(high, low));
#else
  const Pairs x = bits_as<uint32_t>(rounded_by_machine(low)), y = bits_as<uint32_t>(rounded_by_machine(high));
#if defined(__AVX512F__)
  alignas(64) static constexpr uint16_t upper[32] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
                                                     33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
  return _mm512_permutex2var_epi16(x, _mm512_load_si512(upper), y);
#elif defined(__AVX2__)
  return _mm256_permute4x64_epi64(_mm256_packus_epi32(x >> 16, y >> 16), 0xD8);
#else
  constexpr int w = kWidth<float>;
  alignas(64) uint32_t wide[2 * w];
  alignas(64) uint16_t number[2 * w];
  store_pairs(wide, x), store_pairs(wide + w, y);
  for (int i = 0; i < 2 * w; ++i) number[i] = static_cast<uint16_t>(wide[i] >> 16);
  return load_pairs(number);
#endif
#endif
}

// Pairs each number of row a with the number below it in row b. Both rows are given as pairs of neighbours. first()
// returns the pairs of the first half of the numbers, second() those of the second half.
class Interleave {
 public:
#if defined(__AVX512F__)
  Interleave() : first_(_mm512_load_si512(kOrder.numbers)), second_(_mm512_load_si512(kOrder.numbers + 32)) {}
  Pairs first(Pairs a, Pairs b) const { return _mm512_permutex2var_epi16(a, first_, b); }
  Pairs second(Pairs a, Pairs b) const { return _mm512_permutex2var_epi16(a, second_, b); }

 private:
  struct Numbers {
    alignas(64) uint16_t numbers[64];
  };
  static constexpr Numbers order() {
    Numbers n{};
    for (int i = 0; i < 64; ++i) n.numbers[i] = static_cast<uint16_t>(i / 2 + i % 2 * 32);
    return n;
  }
  static const Numbers kOrder;
  __m512i first_, second_;
#elif defined(__AVX2__)
  Pairs first(Pairs a, Pairs b) const {
    return _mm256_permute2x128_si256(_mm256_unpacklo_epi16(a, b), _mm256_unpackhi_epi16(a, b), 0x20);
  }
  Pairs second(Pairs a, Pairs b) const {
    return _mm256_permute2x128_si256(_mm256_unpacklo_epi16(a, b), _mm256_unpackhi_epi16(a, b), 0x31);
  }
#else
  Pairs first(Pairs a, Pairs b) const { return of(a, b, 0); }
  Pairs second(Pairs a, Pairs b) const { return of(a, b, kWidth<float>); }

 private:
  static Pairs of(Pairs a, Pairs b, int begin) {
    constexpr int w = kWidth<float>;
    alignas(64) uint16_t x[2 * w], y[2 * w], both[2 * w];
    store_pairs(x, a), store_pairs(y, b);
    for (int i = 0; i < w; ++i) both[2 * i] = x[begin + i], both[2 * i + 1] = y[begin + i];
    return load_pairs(both);
  }
#endif
};
#if defined(__AVX512F__)
inline constexpr Interleave::Numbers Interleave::kOrder = Interleave::order();
#endif

// ---- Sums of products ----

// The arithmetic mode of this thread in which numbers below 2^-126 count as 0, as inputs and as results. A change of
// the mode takes as long as tens of products.
class FlushMode {
 public:
#if defined(__x86_64__)
  [[gnu::always_inline]] void begin() {
    asm volatile("stmxcsr %0" : "=m"(saved_));
    const uint32_t flushing = saved_ | 0x8040u;  // FTZ, DAZ
    asm volatile("ldmxcsr %0" : : "m"(flushing) : "memory");
  }
  [[gnu::always_inline]] void end() { asm volatile("ldmxcsr %0" : : "m"(saved_) : "memory"); }

 private:
  uint32_t saved_ = 0;
#elif defined(__aarch64__)
  [[gnu::always_inline]] void begin() {
    asm volatile("mrs %0, fpcr" : "=r"(saved_));
    asm volatile("msr fpcr, %0" : : "r"(saved_ | uint64_t{1} << 24) : "memory");  // FZ
  }
  [[gnu::always_inline]] void end() { asm volatile("msr fpcr, %0" : : "r"(saved_) : "memory"); }

 private:
  uint64_t saved_ = 0;
#else
  void begin() {}
  void end() {}
#endif
};

// Sets FlushMode during its lifetime, for functions that are called and not inlined. The mode covers their sums of
// products of pairs and everything computed from these sums. It is set on levels whose sums need no mode too, so that
// all levels give the same bits.
class CalledSubnormalsAsZero {
 public:
  CalledSubnormalsAsZero() { mode_.begin(); }
  ~CalledSubnormalsAsZero() { mode_.end(); }
  CalledSubnormalsAsZero(const CalledSubnormalsAsZero&) = delete;

 private:
  FlushMode mode_;
};

// Sets FlushMode from construction to end(), for the given sums, on levels that add products of pairs by multiply-adds.
// The constructor and end() take all sums, so that the compiler keeps the arithmetic on these sums between the two.
class SubnormalsAsZero {
 public:
  template <class Sums>
  [[gnu::always_inline]] explicit SubnormalsAsZero([[maybe_unused]] Sums& sums) {
#if !defined(__AVX512BF16__)
    mode_.begin();
    hold(sums);
#endif
  }
  template <class Sums>
  [[gnu::always_inline]] void end([[maybe_unused]] Sums& sums) {
#if !defined(__AVX512BF16__)
    hold(sums);
    mode_.end();
#endif
  }

 private:
#if !defined(__AVX512BF16__)
  FlushMode mode_;
#endif
  template <class Register>
  [[gnu::always_inline]] static void pin(Register& r) {
#if defined(__x86_64__)
    asm volatile("" : "+v"(r));
#elif defined(__aarch64__)
    asm volatile("" : "+w"(r));
#endif
  }
  template <class T>
  [[gnu::always_inline]] static void hold(Batch<T>& sum) {
    typename Batch<T>::register_type r = sum;
    pin(r);
    sum = r;
  }
#if defined(__AVX512F__)
  [[gnu::always_inline]] static void hold(__m512& sum) { pin(sum); }
  [[gnu::always_inline]] static void hold(__m256& sum) { pin(sum); }
#endif
  template <class Sums>
  [[gnu::always_inline]] static void hold(Sums& sums) {  // a type with `part`, or with each()
    if constexpr (requires { sums.part; })
      hold(sums.part);
    else
      sums.each([](auto& sum, auto&&...) __attribute__((always_inline)) { hold(sum); });
  }
  template <class Sum, size_t N>
  [[gnu::always_inline]] static void hold(Sum (&sums)[N]) {
    unroll<static_cast<int>(N)>([&](auto i) __attribute__((always_inline)) { hold(sums[i]); });
  }
};
// For other products, which keep subnormal numbers.
struct SubnormalsKept {
  template <class Sums>
  explicit SubnormalsKept(Sums&) {}
  template <class Sums>
  void end(Sums&) {}
};

// sum + the products of the pairs. Call only within a SubnormalsAsZero.
inline Batch<float> add_products(Batch<float> sum, Pairs a, Pairs b) {
#if defined(__AVX512BF16__)
  return _mm512_dpbf16_ps(sum, __builtin_bit_cast(__m512bh, static_cast<__m512i>(a)),
                          __builtin_bit_cast(__m512bh, static_cast<__m512i>(b)));
#else
  return fma(earlier_of(a), earlier_of(b), fma(later_of(a), later_of(b), sum));
#endif
}
#if defined(__AVX512F__)
inline __m256 add_products(__m256 sum, __m256i a, __m256i b) {  // half of a register
#if defined(__AVX512BF16__)
  return _mm256_dpbf16_ps(sum, reinterpret_cast<__m256bh>(a), reinterpret_cast<__m256bh>(b));
#else
  const auto earlier = [](__m256i v) { return _mm256_castsi256_ps(_mm256_slli_epi32(v, 16)); };
  const auto later = [](__m256i v) {
    return _mm256_castsi256_ps(_mm256_and_si256(v, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
  };
  return _mm256_fmadd_ps(earlier(a), earlier(b), _mm256_fmadd_ps(later(a), later(b), sum));
#endif
}
#endif

}  // namespace heed::kernels::HEED_LEVEL

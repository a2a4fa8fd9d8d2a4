// Lanes of products of few rows. Sums run along k in eight lanes of float32 or four of float64 on every level, so that
// the order of a sum is the same everywhere. A register of AVX-512 holds the sums of two rows of a. Included only by
// *.kernel.cpp.
#pragma once
#include "operands.hpp"

namespace heed::kernels::HEED_LEVEL {

template <class T>
inline constexpr int kFewLanes = 32 / static_cast<int>(sizeof(T));

// v in a register: the compiler may not reload v from memory for each use.
template <class Register>
inline Register kept_in_register(Register v) {
#if defined(__x86_64__)
  asm("" : "+v"(v));
#endif
  return v;
}

// Loads and multiply-adds of a product P of few rows, for H rows of a at once: neighbours in k of these rows and of a
// column of b, and their sums. The first half of a vector of b for two rows is the vector of b for one row.
template <class P, int H>
struct FewLanes {
  using T = P;
  using Element = T;                           // of a
  static constexpr int kTaken = kFewLanes<T>;  // neighbours in k per step,
  static constexpr int kHalves = 1;            // in this number of vectors, one after another
  static constexpr int kRows = 1;
  static constexpr int kParts = kTaken / kWidth<T>;
  struct Vector {
    Batch<T> part[kParts];
  };
  using Sums = Vector;

  template <class F>
  static Vector each(const F& f) {
    Vector v;
    unroll<kParts>([&](auto k) { v.part[k] = f(k); });
    return v;
  }
  static Vector a(const T* x) {
    return each([=](auto k) {
      const typename Batch<T>::register_type v = load(x + k * kWidth<T>);
      return Batch<T>(kept_in_register(v));
    });
  }
  template <class S>
  static Vector b(const S* x) {
    return each([=](auto k) { return load_as<T>(x + k * kWidth<T>); });
  }
  template <class S>
  static Vector part(const S* x, int n) {
    return each([=](auto k) { return load_up_to<T>(x + k * kWidth<T>, n - k * kWidth<T>); });
  }
  static Sums zero() {
    return each([](auto) { return Batch<T>(T(0)); });
  }
  static Sums add(const Vector& x, const Vector& y, const Sums& sum) {
    return each([&](auto k) { return fma(x.part[k], y.part[k], sum.part[k]); });
  }
  static Sums sums_at(const T* p) { return b(p); }
  static void store_sums(T* p, const Sums& s) {
    unroll<kParts>([&](auto k) { store(p + k * kWidth<T>, s.part[k]); });
  }
  static void totals(const Sums& s, T* total) {
    Batch<T> sum = s.part[0];
    if constexpr (kParts == 2) sum = sum + s.part[1];
    if constexpr (kParts == 4) sum = (sum + s.part[2]) + (s.part[1] + s.part[3]);
    *total = reduce_add(sum);
  }
};

#if defined(__AVX512F__)
// Two rows take a whole register, one row takes half of one.
template <>
struct FewLanes<float, 1> {
  static constexpr int kRows = 1, kHalves = 1;
  using Element = float;
  using Vector = __m256;
  using Sums = __m256;
  static constexpr int kTaken = 8;
  static __mmask8 first(int n) { return static_cast<__mmask8>((1u << n) - 1u); }
  static __m256 widened(__m128i bf16) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bf16), 16));
  }
  static __m256 a(const float* x) { return kept_in_register(_mm256_loadu_ps(x)); }
  static __m256 b(const float* x) { return _mm256_loadu_ps(x); }
  static __m256 b(const uint16_t* x) { return widened(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x))); }
  static __m256 part(const float* x, int n) { return _mm256_maskz_loadu_ps(first(n), x); }
  static __m256 part(const uint16_t* x, int n) { return widened(_mm_maskz_loadu_epi16(first(n), x)); }
  static __m256 zero() { return _mm256_setzero_ps(); }
  static __m256 add(__m256 x, __m256 y, __m256 sum) { return _mm256_fmadd_ps(x, y, sum); }
  static __m256 sums_at(const float* p) { return _mm256_loadu_ps(p); }
  static void store_sums(float* p, __m256 s) { _mm256_storeu_ps(p, s); }
  static void totals(__m256 s, float* total) { *total = sum_of_lanes(s); }
};
template <>
struct FewLanes<float, 2> {
  static constexpr int kRows = 2, kHalves = 1;
  using Vector = __m512;
  using Sums = __m512;
  static __m512 a(const float* x) { return kept_in_register(_mm512_loadu_ps(x)); }
  static __m512 b(const float* x) { return _mm512_broadcast_f32x8(_mm256_loadu_ps(x)); }
  static __m512 b(const uint16_t* x) {
    const __m256i twice = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x)));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(twice), 16));
  }
  template <class S>
  static __m512 part(const S* x, int n) {
    return _mm512_broadcast_f32x8(FewLanes<float, 1>::part(x, n));
  }
  static __m256 half(__m512 v) { return lower_half(v); }
  static __m512 zero() { return _mm512_setzero_ps(); }
  static __m512 add(__m512 x, __m512 y, __m512 sum) { return _mm512_fmadd_ps(x, y, sum); }
  static __m512 sums_at(const float* p) { return _mm512_loadu_ps(p); }
  static void store_sums(float* p, __m512 s) { _mm512_storeu_ps(p, s); }
  static void totals(__m512 s, float* total) {
    total[0] = sum_of_lanes(lower_half(s)), total[1] = sum_of_lanes(upper_half(s));
  }
};

template <>
struct FewLanes<double, 1> {
  static constexpr int kRows = 1, kHalves = 1;
  using Element = double;
  using Vector = __m256d;
  using Sums = __m256d;
  static constexpr int kTaken = 4;
  static __m256d a(const double* x) { return kept_in_register(_mm256_loadu_pd(x)); }
  static __m256d b(const double* x) { return _mm256_loadu_pd(x); }
  static __m256d part(const double* x, int n) {
    return _mm256_maskz_loadu_pd(static_cast<__mmask8>((1u << n) - 1u), x);
  }
  static __m256d zero() { return _mm256_setzero_pd(); }
  static __m256d add(__m256d x, __m256d y, __m256d sum) { return _mm256_fmadd_pd(x, y, sum); }
  static __m256d sums_at(const double* p) { return _mm256_loadu_pd(p); }
  static void store_sums(double* p, __m256d s) { _mm256_storeu_pd(p, s); }
  static void totals(__m256d s, double* total) { *total = sum_of_lanes(s); }
};
template <>
struct FewLanes<double, 2> {
  static constexpr int kRows = 2, kHalves = 1;
  using Vector = __m512d;
  using Sums = __m512d;
  static __m512d a(const double* x) { return kept_in_register(_mm512_loadu_pd(x)); }
  static __m512d b(const double* x) { return _mm512_broadcast_f64x4(_mm256_loadu_pd(x)); }
  static __m512d part(const double* x, int n) { return _mm512_broadcast_f64x4(FewLanes<double, 1>::part(x, n)); }
  static __m256d half(__m512d v) { return lower_half(v); }
  static __m512d zero() { return _mm512_setzero_pd(); }
  static __m512d add(__m512d x, __m512d y, __m512d sum) { return _mm512_fmadd_pd(x, y, sum); }
  static __m512d sums_at(const double* p) { return _mm512_loadu_pd(p); }
  static void store_sums(double* p, __m512d s) { _mm512_storeu_pd(p, s); }
  static void totals(__m512d s, double* total) {
    total[0] = sum_of_lanes(lower_half(s)), total[1] = sum_of_lanes(upper_half(s));
  }
};
#endif

// Pairs of bf16, with the sums of float32.
#if defined(__AVX512F__)
template <>
struct FewLanes<Bf16Pairs, 1> : FewLanes<float, 1> {
  using Element = uint16_t;
  using Vector = __m256i;
  static constexpr int kTaken = 16;
  static __m256i a(const uint16_t* x) { return kept_in_register(b(x)); }
  static __m256i b(const uint16_t* x) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x)); }
  static __m256i part(const uint16_t* x, int n) {
    return _mm256_maskz_loadu_epi16(static_cast<__mmask16>((1u << n) - 1u), x);
  }
  static __m256 add(__m256i x, __m256i y, __m256 sum) { return add_products(sum, x, y); }
};
template <>
struct FewLanes<Bf16Pairs, 2> : FewLanes<float, 2> {
  using Vector = __m512i;
  static __m512i a(const uint16_t* x) { return kept_in_register(_mm512_loadu_si512(x)); }
  static __m512i b(const uint16_t* x) { return _mm512_broadcast_i64x4(FewLanes<Bf16Pairs, 1>::b(x)); }
  static __m512i part(const uint16_t* x, int n) { return _mm512_broadcast_i64x4(FewLanes<Bf16Pairs, 1>::part(x, n)); }
  static __m256i half(__m512i v) { return _mm512_castsi512_si256(v); }
  static __m512 add(__m512i x, __m512i y, __m512 sum) { return add_products(Batch<float>(sum), Pairs(x), Pairs(y)); }
};
#else
// Widens half of the numbers of a vector at a time: the later number of each pair, then the earlier. More registers are
// left for sums. The numbers of a are packed in this order.
template <>
struct FewLanes<Bf16Pairs, 1> : FewLanes<float, 1> {
  using Element = float;
  static constexpr int kTaken = 16, kHalves = 2;
  template <int kHalf>
  static Vector a(const float* x) {
    return FewLanes<float, 1>::a(x + kHalf * kTaken / 2);
  }
#if defined(__AVX2__)
  // Written by hand: the sums of four rows and three columns leave 4 of 16 registers. A compiler uses more, since it
  // sees that both halves are in the same bytes.
  template <int kHalf>
  static Vector b(const uint16_t* x) {
    const auto& pairs = *reinterpret_cast<const __m256i_u*>(x);
    __m256i y;
    if constexpr (kHalf == 0)
      asm volatile("vmovdqu %1, %0; vpand %2, %0, %0" : "=&x"(y) : "m"(pairs), "m"(kUpper));
    else
      asm volatile("vmovdqu %1, %0; vpslld $16, %0, %0" : "=&x"(y) : "m"(pairs));
    return {{ _mm256_castsi256_ps(y) }};
  }
  // sum[j] += x y[j], where x is one half of a row of a.
  template <int kHalf>
  [[gnu::always_inline]] static void add_row(const float* a, const Vector (&y)[3], Sums (&sum)[3]) {
    __m256 s0 = sum[0].part[0], s1 = sum[1].part[0], s2 = sum[2].part[0], x;
    const __m256 y0 = y[0].part[0], y1 = y[1].part[0], y2 = y[2].part[0];
    asm volatile("vmovups %4, %3; vfmadd231ps %5, %3, %0; vfmadd231ps %6, %3, %1; vfmadd231ps %7, %3, %2"
                 : "+x"(s0), "+x"(s1), "+x"(s2), "=&x"(x)
                 : "m"(*reinterpret_cast<const __m256_u*>(a + kHalf * kTaken / 2)), "x"(y0), "x"(y1), "x"(y2));
    sum[0].part[0] = s0, sum[1].part[0] = s1, sum[2].part[0] = s2;
  }
#else
  template <int kHalf>
  static Vector b(const uint16_t* x) {
    return half<kHalf>(x, [](const uint16_t* p, int) { return load_pairs(p); });
  }
#endif
  template <int kHalf>
  static Vector part(const float* x, int) {  // a is padded to whole vectors
    return a<kHalf>(x);
  }
  template <int kHalf>
  static Vector part(const uint16_t* x, int n) {
    return half<kHalf>(x, [n](const uint16_t* p, int before) { return load_pairs_part(p, n - before); });
  }

 private:
#if defined(__AVX2__)
  static constexpr uint32_t kLater = 0xffff0000u;
  alignas(32) static constexpr uint32_t kUpper[] = {kLater, kLater, kLater, kLater, kLater, kLater, kLater, kLater};
#endif
  template <int kHalf, class Load>
  static Vector half(const uint16_t* x, const Load& load) {
#if defined(__x86_64__)
    asm("" : "+r"(x));  // each half is loaded again, not kept in a register from the first on
#endif
    return each([&](auto k) {
      constexpr int before = k * 2 * kWidth<float>;
      const Pairs both = load(x + before, before);
      return kHalf == 0 ? later_of(both) : earlier_of(both);
    });
  }
};
#endif

// Fills to[kTaken]: n neighbours in k that are `stride` apart, then zeros.
template <class P, class S>
inline void copy_neighbours(const S* x, long stride, long n, typename FewLanes<P, 1>::Element* to) {
  using E = typename FewLanes<P, 1>::Element;
  constexpr long taken = FewLanes<P, 1>::kTaken;
  for (long p = 0; p < taken; ++p) {
    if constexpr (!std::is_same_v<P, Bf16Pairs>)
      to[p] = p < n ? element<E>(x + p * stride) : E(0);
    else if constexpr (std::is_same_v<E, uint16_t>)
      to[p] = p < n ? bf16_by_machine(x[p * stride]) : E(0);
    else
      to[(p % 2 == 0 ? taken / 2 : 0) + p / 2] = p < n ? bf16_to_float(bf16_by_machine(x[p * stride])) : E(0);
  }
}

}  // namespace heed::kernels::HEED_LEVEL

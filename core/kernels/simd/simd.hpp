// Vectors of the level for which a kernel is compiled: xsimd batches, and replacements for functions that xsimd 8.1 to
// 14.3 lack, get wrong or change between releases. Each replacement names the gap that it closes. Everything is in the
// level's own namespace, so that the linker shares no symbol between levels. Included only by *.kernel.cpp.
#pragma once
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <xsimd/xsimd.hpp>

#if defined(__aarch64__)
// Gap: on NEON, xsimd divides floats by an estimate of 1 / y: 1 / 1e-39 is -inf, and ordinary quotients are off by
// several ulp. The machine's division is exact. `/` of two batches calls this operator.
template <>
inline xsimd::batch<float, xsimd::neon64>& xsimd::batch<float, xsimd::neon64>::operator/=(
    const xsimd::batch<float, xsimd::neon64>& y) noexcept {
  return *this = vdivq_f32(*this, y);
}
#endif

namespace heed::kernels::HEED_LEVEL {

#if defined(HEED_LEVEL_avx512) || defined(HEED_LEVEL_avx512_bf16)
using Arch = xsimd::avx512bw;
#elif defined(HEED_LEVEL_avx2)
using Arch = xsimd::fma3<xsimd::avx2>;
#elif defined(__aarch64__)
using Arch = xsimd::neon64;
#else
using Arch = xsimd::default_arch;  // from the compiler's flags: sse2 on x86-64
#endif

template <class T>
using Batch = xsimd::batch<T, Arch>;
template <class T>
using Mask = xsimd::batch_bool<T, Arch>;
template <class T>
inline constexpr int kWidth = static_cast<int>(Batch<T>::size);

template <class T>
inline constexpr T kInfinity = static_cast<T>(__builtin_inf());
template <class T>
inline Batch<T> minus_infinity() {
  return Batch<T>(-kInfinity<T>);
}

template <class T>
inline Batch<T> load(const T* p) {
  return Batch<T>::load_unaligned(p);
}
template <class T>
inline Batch<T> load_aligned(const T* p) {
  return Batch<T>::load_aligned(p);
}
template <class T>
inline void store(T* p, Batch<T> v) {
  v.store_unaligned(p);
}
template <class T>
inline void store_aligned(T* p, Batch<T> v) {
  v.store_aligned(p);
}

// The vector 0, 1, 2, ...
template <class T>
inline Batch<T> lane_numbers() {
  alignas(64) T n[kWidth<T>];
  for (int i = 0; i < kWidth<T>; ++i) n[i] = static_cast<T>(i);
  return load_aligned(n);
}

// x * y + z, rounded once on avx2, avx512 and neon, and twice on baseline x86.
// Gap: xsimd's fma on AVX-512 is a multiplication and an addition.
template <class T>
inline Batch<T> fma(Batch<T> x, Batch<T> y, Batch<T> z) {
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 4)
    return _mm512_fmadd_ps(x, y, z);
  else
    return _mm512_fmadd_pd(x, y, z);
#else
  return xsimd::fma(x, y, z);
#endif
}

// -x for float and double: reverses the sign, also of zeros and NaN.
// Gap: xsimd's unary minus on AVX-512 is 0 - x, which gives +0 for +0.
template <class T>
inline Batch<T> neg(Batch<T> x) {
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 4)
    return _mm512_castsi512_ps(_mm512_xor_si512(_mm512_castps_si512(x), _mm512_set1_epi32(INT32_MIN)));
  else
    return _mm512_castsi512_pd(_mm512_xor_si512(_mm512_castpd_si512(x), _mm512_set1_epi64(INT64_MIN)));
#else
  return -x;
#endif
}

// z - x * y, rounded like fma.
template <class T>
inline Batch<T> fnma(Batch<T> x, Batch<T> y, Batch<T> z) {
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 4)
    return _mm512_fnmadd_ps(x, y, z);
  else
    return _mm512_fnmadd_pd(x, y, z);
#else
  return fma(-x, y, z);
#endif
}

// `yes` or `no` per lane, for float, double, int32 and int64.
// Gap: xsimd's select of integers on AVX-512 does not compile without optimization.
template <class T>
inline Batch<T> select(Mask<T> m, Batch<T> yes, Batch<T> no) {
#if defined(__AVX512F__)
  if constexpr (std::is_same_v<T, float>)
    return _mm512_mask_mov_ps(no, m, yes);
  else if constexpr (std::is_same_v<T, double>)
    return _mm512_mask_mov_pd(no, m, yes);
  else if constexpr (sizeof(T) == 4)
    return _mm512_mask_mov_epi32(no, m, yes);
  else
    return _mm512_mask_mov_epi64(no, m, yes);
#else
  return xsimd::select(m, yes, no);
#endif
}

// Gaps: on AVX, xsimd's x != y is false if x or y is NaN (write !(x == y)). On AVX-512, its ^ of masks is |. The
// operators <, <=, >, >= and == are correct, and so are xsimd's isnan, any, all and abs, which kernels call directly.

// The maximum (kGreater) or the minimum in one instruction on x86 and aarch64. A NaN in y is returned; a NaN in x may
// be lost. Use only if x holds no NaN, or if losing it does not matter.
// Gap: which operand xsimd's max and min return if one is NaN differs between releases.
template <bool kGreater, class T>
inline Batch<T> quick_extremum(Batch<T> x, Batch<T> y) {
  constexpr bool single = sizeof(T) == 4;
#if defined(__AVX512F__)
  if constexpr (single)
    return kGreater ? _mm512_max_ps(x, y) : _mm512_min_ps(x, y);
  else
    return kGreater ? _mm512_max_pd(x, y) : _mm512_min_pd(x, y);
#elif defined(__AVX2__)
  if constexpr (single)
    return kGreater ? _mm256_max_ps(x, y) : _mm256_min_ps(x, y);
  else
    return kGreater ? _mm256_max_pd(x, y) : _mm256_min_pd(x, y);
#elif defined(__SSE2__)
  if constexpr (single)
    return kGreater ? _mm_max_ps(x, y) : _mm_min_ps(x, y);
  else
    return kGreater ? _mm_max_pd(x, y) : _mm_min_pd(x, y);
#elif defined(__aarch64__)
  if constexpr (single)
    return kGreater ? vmaxq_f32(x, y) : vminq_f32(x, y);
  else
    return kGreater ? vmaxq_f64(x, y) : vminq_f64(x, y);
#else
  return select(kGreater ? x > y : x < y, x, y);
#endif
}
template <class T>
inline Batch<T> quick_max(Batch<T> x, Batch<T> y) {
  return quick_extremum<true>(x, y);
}
template <class T>
inline Batch<T> quick_min(Batch<T> x, Batch<T> y) {
  return quick_extremum<false>(x, y);
}
// The maximum and the minimum; NaN if x or y is NaN, as in PyTorch.
template <class T>
inline Batch<T> max(Batch<T> x, Batch<T> y) {
  return select(isnan(x), x, quick_max(x, y));
}
template <class T>
inline Batch<T> min(Batch<T> x, Batch<T> y) {
  return select(isnan(x), x, quick_min(x, y));
}

// The same bits as lanes of another type.
// Gap: the meaning of the template argument of xsimd's bitwise_cast changed between releases.
template <class To, class From>
inline Batch<To> bits_as(Batch<From> x) {
  return __builtin_bit_cast(typename Batch<To>::register_type, static_cast<typename Batch<From>::register_type>(x));
}

// ---- Tails. Gap: xsimd has no masked load or store. ----

// A mask of the first n lanes, 0 <= n <= width.
template <class T>
inline Mask<T> first_lanes(int n) {
#if defined(__AVX512F__)
  return static_cast<typename Mask<T>::register_type>((1u << n) - 1u);
#elif defined(__AVX2__)
  if constexpr (sizeof(T) == 4) {
    const __m256i m = _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    if constexpr (std::is_same_v<T, float>)
      return _mm256_castsi256_ps(m);
    else
      return m;
  } else {
    const __m256i m = _mm256_cmpgt_epi64(_mm256_set1_epi64x(n), _mm256_setr_epi64x(0, 1, 2, 3));
    if constexpr (std::is_same_v<T, double>)
      return _mm256_castsi256_pd(m);
    else
      return m;
  }
#else
  return lane_numbers<T>() < Batch<T>(static_cast<T>(n));
#endif
}

// p[0, n) in the first lanes, `fill` in the others. Reads nothing beyond p[0, n). For float, double, int32.
template <class T>
inline Batch<T> load_part(const T* p, int n, T fill = T(0)) {
#if defined(__AVX512F__)
  const Mask<T> m = first_lanes<T>(n);
  if constexpr (std::is_same_v<T, float>)
    return _mm512_mask_loadu_ps(_mm512_set1_ps(fill), m, p);
  else if constexpr (std::is_same_v<T, double>)
    return _mm512_mask_loadu_pd(_mm512_set1_pd(fill), m, p);
  else
    return _mm512_mask_loadu_epi32(_mm512_set1_epi32(fill), m, p);
#elif defined(__AVX2__)
  const Mask<T> m = first_lanes<T>(n);
  Batch<T> v(T(0));
  if constexpr (std::is_same_v<T, float>)
    v = _mm256_maskload_ps(p, _mm256_castps_si256(m));
  else if constexpr (std::is_same_v<T, double>)
    v = _mm256_maskload_pd(p, _mm256_castpd_si256(m));
  else
    v = _mm256_maskload_epi32(p, m);
  return select(m, v, Batch<T>(fill));
#else
  alignas(64) T lane[kWidth<T>];
  for (int i = 0; i < kWidth<T>; ++i) lane[i] = i < n ? p[i] : fill;
  return Batch<T>::load_aligned(lane);
#endif
}

// Stores the first n lanes to p[0, n). Writes nothing beyond.
template <class T>
inline void store_part(T* p, Batch<T> v, int n) {
#if defined(__AVX512F__)
  const Mask<T> m = first_lanes<T>(n);
  if constexpr (std::is_same_v<T, float>)
    _mm512_mask_storeu_ps(p, m, v);
  else if constexpr (std::is_same_v<T, double>)
    _mm512_mask_storeu_pd(p, m, v);
  else
    _mm512_mask_storeu_epi32(p, m, v);
#elif defined(__AVX2__)
  const Mask<T> m = first_lanes<T>(n);
  if constexpr (std::is_same_v<T, float>)
    _mm256_maskstore_ps(p, _mm256_castps_si256(m), v);
  else if constexpr (std::is_same_v<T, double>)
    _mm256_maskstore_pd(p, _mm256_castpd_si256(m), v);
  else
    _mm256_maskstore_epi32(p, m, v);
#else
  alignas(64) T lane[kWidth<T>];
  v.store_aligned(lane);
  for (int i = 0; i < n; ++i) p[i] = lane[i];
#endif
}

}  // namespace heed::kernels::HEED_LEVEL

#include "bf16.hpp"
#include "lanes.hpp"
#include "math.hpp"
#include "normal.hpp"
#include "pairs.hpp"

// bfloat16 in memory, float32 in registers. Included by simd.hpp.
// Gap: xsimd has no bf16.
#pragma once

namespace heed::kernels::HEED_LEVEL {

inline float bf16_to_float(uint16_t b) { return __builtin_bit_cast(float, static_cast<uint32_t>(b) << 16); }

// p[0, n) in the first lanes, zeros in the others.
inline Batch<float> load_bf16_part(const uint16_t* p, int n) {
#if defined(__AVX512F__)
  const __m256i h = _mm256_maskz_loadu_epi16(static_cast<__mmask16>((1u << n) - 1u), p);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
#else
  alignas(64) float lane[kWidth<float>];
  for (int i = 0; i < kWidth<float>; ++i) lane[i] = i < n ? bf16_to_float(p[i]) : 0.f;
  return Batch<float>::load_aligned(lane);
#endif
}

inline Batch<float> load_bf16(const uint16_t* p) {
#if defined(__AVX512F__)
  const __m256i h = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
#elif defined(__AVX2__)
  const __m128i h = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
#elif defined(__SSE2__)
  const __m128i h = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  return _mm_castsi128_ps(_mm_unpacklo_epi16(_mm_setzero_si128(), h));
#else
  return load_bf16_part(p, kWidth<float>);
#endif
}

// The nearest bf16, ties to even. A NaN stays a NaN.
inline uint16_t float_to_bf16(float x) {
  const uint32_t u = __builtin_bit_cast(uint32_t, x);
  const bool nan = (u & 0x7fffffffu) > 0x7f800000u;
  return static_cast<uint16_t>(nan ? (u >> 16) | 0x40u : (u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

inline void store_bf16(uint16_t* p, const Batch<float>& x) {
#if defined(__AVX512F__)
  const __m512i u = _mm512_castps_si512(x), high = _mm512_srli_epi32(u, 16),
                odd = _mm512_and_si512(high, _mm512_set1_epi32(1)),
                rounded = _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd), 16);
  const __m512i both =
      _mm512_mask_or_epi32(rounded, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), high, _mm512_set1_epi32(0x40));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(both));
#elif defined(__AVX2__)
  const __m256i u = _mm256_castps_si256(x), high = _mm256_srli_epi32(u, 16),
                odd = _mm256_and_si256(high, _mm256_set1_epi32(1)),
                rounded = _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), odd), 16);
  const __m256i both = _mm256_blendv_epi8(rounded, _mm256_or_si256(high, _mm256_set1_epi32(0x40)),
                                          _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)));
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(both, both), 0x08);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(packed));
#else
  alignas(64) float lane[kWidth<float>];
  x.store_aligned(lane);
  for (int i = 0; i < kWidth<float>; ++i) p[i] = float_to_bf16(lane[i]);
#endif
}

inline void store_bf16_part(uint16_t* p, const Batch<float>& x, int n) {
  alignas(64) uint16_t lane[kWidth<float>];
  store_bf16(lane, x);
  memcpy(p, lane, static_cast<size_t>(n) * sizeof(uint16_t));
}

// Stores one byte per lane: the eight bits of x that follow those of `rounded`, which is x as bf16. Together they hold
// 16 bits of the fraction. Numbers below 2^-126 that the machine rounds to 0 differ by more than a byte holds, and get
// 255.
inline void store_rest(uint8_t* p, const Batch<float>& x, const Batch<float>& rounded) {
  const Batch<int32_t> rest = ((bits_as<int32_t>(x) - bits_as<int32_t>(rounded)) >> 8) + Batch<int32_t>(128);
  const Batch<int32_t> byte = xsimd::min(xsimd::max(rest, Batch<int32_t>(0)), Batch<int32_t>(255));
#if defined(__AVX512F__)
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(byte));
#else
  alignas(64) int32_t lane[kWidth<float>];
  byte.store_aligned(lane);
  for (int i = 0; i < kWidth<float>; ++i) p[i] = static_cast<uint8_t>(lane[i]);
#endif
}

// x, restored from `rounded` and the byte that store_rest() stored.
inline Batch<float> with_rest(const Batch<float>& rounded, const uint8_t* p) {
#if defined(__AVX512F__)
  const Batch<int32_t> byte = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#else
  alignas(64) int32_t lane[kWidth<float>];
  for (int i = 0; i < kWidth<float>; ++i) lane[i] = p[i];
  const Batch<int32_t> byte = Batch<int32_t>::load_aligned(lane);
#endif
  return bits_as<float>(bits_as<int32_t>(rounded) + ((byte - Batch<int32_t>(128)) << 8));
}

// x rounded to the nearest bf16, as float32.
inline Batch<float> rounded(Batch<float> x) {
  const Batch<int32_t> u = bits_as<int32_t>(x), high = u & Batch<int32_t>(-0x10000);
  const Batch<int32_t> half = Batch<int32_t>(0x7fff) + ((u >> 16) & Batch<int32_t>(1));
  const Batch<int32_t> nearest = (u + half) & Batch<int32_t>(-0x10000);
  return select(isnan(x), bits_as<float>(high | Batch<int32_t>(0x400000)), bits_as<float>(nearest));
}

// Elements in memory of type S (float, double, or bf16 as uint16_t), as T.
template <class T>
inline T element(const T* p) {
  return *p;
}
template <class T>
inline float element(const uint16_t* p) {
  return bf16_to_float(*p);
}
template <class T>
inline Batch<T> load_as(const T* p) {
  return load(p);
}
template <class T>
inline Batch<T> load_as(const uint16_t* p) {
  return load_bf16(p);
}
template <class T>
inline Batch<T> load_as_part(const T* p, int n) {
  return load_part(p, n);
}
template <class T>
inline Batch<T> load_as_part(const uint16_t* p, int n) {
  return load_bf16_part(p, n);
}
// p[0, n) as T in the first lanes, zeros in the others. n may be negative, or more than a vector holds.
template <class T, class S>
inline Batch<T> load_up_to(const S* p, long n) {
  return n >= kWidth<T> ? load_as<T>(p) : load_as_part<T>(p, static_cast<int>(n > 0 ? n : 0));
}

}  // namespace heed::kernels::HEED_LEVEL

// bfloat16 in memory, float32 in registers. Included by simd.hpp.
// Gap: xsimd has no bf16.
#pragma once

namespace heed::kernels::HEED_LEVEL {

inline float bf16_to_float(uint16_t b) {
  const uint32_t u = static_cast<uint32_t>(b) << 16;
  float x;
  memcpy(&x, &u, sizeof x);
  return x;
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
  alignas(64) float lane[kWidth<float>];
  for (int i = 0; i < kWidth<float>; ++i) lane[i] = bf16_to_float(p[i]);
  return Batch<float>::load_aligned(lane);
#endif
}

inline Batch<float> load_bf16_part(const uint16_t* p, int n, float fill = 0) {
#if defined(__AVX512F__)
  const __m256i h = _mm256_maskz_loadu_epi16(static_cast<__mmask16>((1u << n) - 1u), p);
  const Batch<float> v = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
  return select(first_lanes<float>(n), v, Batch<float>(fill));
#else
  alignas(64) float lane[kWidth<float>];
  for (int i = 0; i < kWidth<float>; ++i) lane[i] = i < n ? bf16_to_float(p[i]) : fill;
  return Batch<float>::load_aligned(lane);
#endif
}

// Elements of memory of type S (float, double, or bf16 as uint16_t) as T.
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

}  // namespace heed::kernels::HEED_LEVEL

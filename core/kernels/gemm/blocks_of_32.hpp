// The numbers of ggml's quantized blocks, as vectors of float32. Every level computes the same bits: a product of scale
// and integer is exact, and q4_1 adds its minimum with one rounding. Included only by *.kernel.cpp.
#pragma once
#include "../simd/lane_sums.hpp"

namespace heed::kernels::HEED_LEVEL {

inline constexpr int kBlockNumbers = 32;
// Vectors per half of a block: 16 numbers, one for each lane of a sum.
inline constexpr int kHalfParts = kSumParts<float>;
using HalfBlock = Batch<float>[kHalfParts];

// The f16 at p, of any alignment, in all lanes.
inline Batch<float> f16_at(const uint8_t* p) {
  uint16_t bits;
  memcpy(&bits, p, sizeof bits);
#if defined(__AVX512F__)
  return _mm512_cvtph_ps(_mm256_set1_epi16(static_cast<int16_t>(bits)));
#elif defined(__F16C__)
  return _mm256_cvtph_ps(_mm_set1_epi16(static_cast<int16_t>(bits)));
#elif defined(__aarch64__)
  return Batch<float>(static_cast<float>(__builtin_bit_cast(__fp16, bits)));
#else
  constexpr uint32_t rebias = 112u << 23, last = 31u << 23;  // as from_float16() in core/float16.hpp
  const uint32_t shifted = (bits & 0x7fffu) << 13, sign = (bits & 0x8000u) << 16;
  const uint32_t normal = shifted + rebias + (shifted >= last ? rebias : 0u);
  const float one_more = __builtin_bit_cast(float, shifted + rebias + (1u << 23)),
              one = __builtin_bit_cast(float, 113u << 23);
  const uint32_t subnormal = __builtin_bit_cast(uint32_t, one_more - one);
  return Batch<float>(__builtin_bit_cast(float, (shifted < (1u << 23) ? subnormal : normal) | sign));
#endif
}

// 16 signed bytes in a register.
struct Bytes16 {
#if defined(__SSE2__)
  __m128i v;
  static Bytes16 at(const void* p) { return {_mm_loadu_si128(static_cast<const __m128i*>(p))}; }
  // The lower and the upper four bits of each byte.
  Bytes16 low() const { return {_mm_and_si128(v, _mm_set1_epi8(15))}; }
  Bytes16 high() const { return {_mm_and_si128(_mm_srli_epi16(v, 4), _mm_set1_epi8(15))}; }
  Bytes16 minus(int8_t x) const { return {_mm_sub_epi8(v, _mm_set1_epi8(x))}; }
#elif defined(__aarch64__)
  int8x16_t v;
  static Bytes16 at(const void* p) { return {vld1q_s8(static_cast<const int8_t*>(p))}; }
  Bytes16 low() const { return {vandq_s8(v, vdupq_n_s8(15))}; }
  Bytes16 high() const { return {vreinterpretq_s8_u8(vshrq_n_u8(vreinterpretq_u8_s8(v), 4))}; }
  Bytes16 minus(int8_t x) const { return {vsubq_s8(v, vdupq_n_s8(x))}; }
#else
  int8_t v[16];
  static Bytes16 at(const void* p) {
    Bytes16 x;
    memcpy(x.v, p, 16);
    return x;
  }
  template <class F>
  Bytes16 each(const F& f) const {
    Bytes16 x;
    for (int i = 0; i < 16; ++i) x.v[i] = static_cast<int8_t>(f(v[i]));
    return x;
  }
  Bytes16 low() const {
    return each([](int8_t x) { return x & 15; });
  }
  Bytes16 high() const {
    return each([](int8_t x) { return (static_cast<uint8_t>(x) >> 4) & 15; });
  }
  Bytes16 minus(int8_t y) const {
    return each([y](int8_t x) { return x - y; });
  }
#endif

  // The bytes as numbers.
  void numbers(HalfBlock& y) const {
#if defined(__AVX512F__)
    y[0] = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(v));
#elif defined(__AVX2__)
    y[0] = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(v));
    y[1] = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_unpackhi_epi64(v, v)));
#elif defined(__SSE2__)
    const __m128i sign = _mm_cmpgt_epi8(_mm_setzero_si128(), v);
    const __m128i words[] = {_mm_unpacklo_epi8(v, sign), _mm_unpackhi_epi8(v, sign)};
    unroll<2>([&](auto k) {
      const __m128i high = _mm_srai_epi16(words[k], 15);
      y[2 * k] = _mm_cvtepi32_ps(_mm_unpacklo_epi16(words[k], high));
      y[2 * k + 1] = _mm_cvtepi32_ps(_mm_unpackhi_epi16(words[k], high));
    });
#elif defined(__aarch64__)
    const int16x8_t words[] = {vmovl_s8(vget_low_s8(v)), vmovl_s8(vget_high_s8(v))};
    unroll<2>([&](auto k) {
      y[2 * k] = vcvtq_f32_s32(vmovl_s16(vget_low_s16(words[k])));
      y[2 * k + 1] = vcvtq_f32_s32(vmovl_s16(vget_high_s16(words[k])));
    });
#else
    alignas(64) float x[16];
    for (int i = 0; i < 16; ++i) x[i] = v[i];
    unroll<kHalfParts>([&](auto k) { y[k] = load_aligned(x + k * kWidth<float>); });
#endif
  }
};

// A type of blocks: the bytes of a block, and each(block, f), which calls f(half, numbers) for the numbers of its two
// halves.

struct BlocksQ8 {
  static constexpr long kBytes = 34;
  template <class F>
  [[gnu::always_inline]] static void each(const uint8_t* block, const F& f) {
    const Batch<float> scale = f16_at(block);
    unroll<2>([&](auto half) __attribute__((always_inline)) {
      HalfBlock x;
      Bytes16::at(block + 2 + 16 * half).numbers(x);
      unroll<kHalfParts>([&](auto k) __attribute__((always_inline)) { x[k] = x[k] * scale; });
      f(half, x);
    });
  }
};

struct BlocksQ4 {  // q4_0
  static constexpr long kBytes = 18;
  template <class F>
  [[gnu::always_inline]] static void each(const uint8_t* block, const F& f) {
    const Batch<float> scale = f16_at(block);
    const Bytes16 both = Bytes16::at(block + 2);
    unroll<2>([&](auto half) __attribute__((always_inline)) {
      HalfBlock x;
      (half == 0 ? both.low() : both.high()).minus(8).numbers(x);
      unroll<kHalfParts>([&](auto k) __attribute__((always_inline)) { x[k] = x[k] * scale; });
      f(half, x);
    });
  }
};

struct BlocksQ41 {  // q4_1
  static constexpr long kBytes = 20;
  template <class F>
  [[gnu::always_inline]] static void each(const uint8_t* block, const F& f) {
    const Batch<float> scale = f16_at(block), minimum = f16_at(block + 2);
    const Bytes16 both = Bytes16::at(block + 4);
    unroll<2>([&](auto half) __attribute__((always_inline)) {
      HalfBlock x;
      (half == 0 ? both.low() : both.high()).numbers(x);
      unroll<kHalfParts>([&](auto k) __attribute__((always_inline)) { x[k] = fma(x[k], scale, minimum); });
      f(half, x);
    });
  }
};

// 32 numbers of float32, for rows that were unpacked before.
struct BlocksUnpacked {
  static constexpr long kBytes = 128;
  template <class F>
  [[gnu::always_inline]] static void each(const uint8_t* block, const F& f) {
    const auto* numbers = reinterpret_cast<const float*>(block);
    unroll<2>([&](auto half) __attribute__((always_inline)) {
      HalfBlock x;
      unroll<kHalfParts>([&](auto k)
                             __attribute__((always_inline)) { x[k] = load(numbers + 16 * half + k * kWidth<float>); });
      f(half, x);
    });
  }
};

// Calls f(Q{}) with the type of the blocks of b.
template <class F>
inline void with_blocks(Blocks type, const F& f) {
  switch (type) {
    case Blocks::q4_0: return f(BlocksQ4{});
    case Blocks::q4_1: return f(BlocksQ41{});
    default: return f(BlocksQ8{});
  }
}

// out[0, n): the numbers first, first + 1, ... of a row of blocks.
template <class Q>
inline void unpack_numbers(const uint8_t* blocks, long first, long n, float* out) {
  const auto unpack = [](const uint8_t* block, float* to) __attribute__((always_inline)) {
    Q::each(
        block, [to](auto half, const HalfBlock& x) __attribute__((always_inline)) {
          unroll<kHalfParts>([&](auto k)
                                 __attribute__((always_inline)) { store(to + 16 * half + k * kWidth<float>, x[k]); });
        });
  };
  const uint8_t* block = blocks + first / kBlockNumbers * Q::kBytes;
  for (long skip = first % kBlockNumbers; n > 0; block += Q::kBytes, skip = 0) {
    const long left = kBlockNumbers - skip, count = n < left ? n : left;
    if (count == kBlockNumbers) {
      unpack(block, out);
    } else {
      float whole[kBlockNumbers];
      unpack(block, whole);
      memcpy(out, whole + skip, static_cast<size_t>(count) * sizeof *out);
    }
    out += count, n -= count;
  }
}

}  // namespace heed::kernels::HEED_LEVEL

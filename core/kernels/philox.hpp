// Random words in lanes: Philox4x32-10, as heed::philox of core/random.hpp. Included only by *.kernel.cpp.
#pragma once
#include "simd.hpp"

namespace heed::kernels::HEED_LEVEL {

using Words = Batch<uint32_t>;

// The products of 32-bit words with a constant, as their high and low halves.
// Gap: xsimd has no product of 32-bit words to 64 bits.
inline void multiply(Words x, uint32_t factor, Words& high, Words& low) {
#if defined(__AVX512F__)
  const __m512i m = _mm512_set1_epi64(factor);
  const __m512i even = _mm512_mul_epu32(x, m), odd = _mm512_mul_epu32(_mm512_srli_epi64(x, 32), m);
  high = _mm512_mask_mov_epi32(_mm512_srli_epi64(even, 32), 0xAAAA, odd);
  low = _mm512_mask_mov_epi32(even, 0xAAAA, _mm512_slli_epi64(odd, 32));
#elif defined(__AVX2__)
  const __m256i m = _mm256_set1_epi64x(factor);
  const __m256i even = _mm256_mul_epu32(x, m), odd = _mm256_mul_epu32(_mm256_srli_epi64(x, 32), m);
  high = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA);
  low = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA);
#else
  alignas(64) uint32_t lane[kWidth<uint32_t>], h[kWidth<uint32_t>], l[kWidth<uint32_t>];
  x.store_aligned(lane);
  for (int i = 0; i < kWidth<uint32_t>; ++i) {
    const uint64_t product = static_cast<uint64_t>(lane[i]) * factor;
    h[i] = static_cast<uint32_t>(product >> 32);
    l[i] = static_cast<uint32_t>(product);
  }
  high = Words::load_aligned(h);
  low = Words::load_aligned(l);
#endif
}

// words[j][l] = word j of philox(seed, counter(l), stream), for N counters.
template <int N, class Counter>
inline void philox_words(uint64_t seed, uint64_t stream, const Counter& counter, uint32_t (&words)[4][N]) {
  constexpr int w = kWidth<uint32_t>;
  for (int l = 0; l < N; ++l) {
    const uint64_t c = counter(l);
    words[0][l] = static_cast<uint32_t>(c);
    words[1][l] = static_cast<uint32_t>(c >> 32);
  }
  const uint32_t stream_low = static_cast<uint32_t>(stream), stream_high = static_cast<uint32_t>(stream >> 32);
  for (int l = 0; l < N; l += w) {
    alignas(64) uint32_t part[2][w] = {};
    constexpr bool whole = N % w == 0;
    if constexpr (!whole)
      for (int i = 0; i < w && l + i < N; ++i) part[0][i] = words[0][l + i], part[1][i] = words[1][l + i];
    Words c0 = whole ? Words::load_unaligned(words[0] + l) : Words::load_aligned(part[0]);
    Words c1 = whole ? Words::load_unaligned(words[1] + l) : Words::load_aligned(part[1]);
    Words c2(stream_low), c3(stream_high);
    uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
    for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
      Words h0, l0, h1, l1;
      multiply(c0, 0xD2511F53u, h0, l0);
      multiply(c2, 0xCD9E8D57u, h1, l1);
      c0 = h1 ^ c1 ^ Words(k0);
      c1 = l1;
      c2 = h0 ^ c3 ^ Words(k1);
      c3 = l0;
    }
    const Words all[4] = {c0, c1, c2, c3};
    for (int j = 0; j < 4; ++j) {
      if constexpr (whole) {
        all[j].store_unaligned(words[j] + l);
      } else {
        all[j].store_aligned(part[0]);
        for (int i = 0; i < w && l + i < N; ++i) words[j][l + i] = part[0][i];
      }
    }
  }
}

}  // namespace heed::kernels::HEED_LEVEL

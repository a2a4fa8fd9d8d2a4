#include "dropout.hpp"

#include "simd.hpp"

namespace heed::kernels::HEED_LEVEL {
namespace {

using Words = Batch<uint32_t>;

// The products of 32-bit words with a constant, as their high and low halves.
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

// The 64 words of a group: word j of block l at words[16 j + l]. Philox4x32-10, as heed::philox.
void philox_group(const DropoutMask& mask, int64_t group, uint32_t* words) {
  alignas(64) uint32_t low[kDropoutBlocks], high[kDropoutBlocks];
  for (int l = 0; l < kDropoutBlocks; ++l) {
    const uint64_t counter = mask.position + static_cast<uint64_t>(group) * kDropoutBlocks + static_cast<uint64_t>(l);
    low[l] = static_cast<uint32_t>(counter);
    high[l] = static_cast<uint32_t>(counter >> 32);
  }
  for (int l = 0; l < kDropoutBlocks; l += kWidth<uint32_t>) {
    Words c0 = Words::load_aligned(low + l), c1 = Words::load_aligned(high + l);
    Words c2(static_cast<uint32_t>(mask.stream)), c3(static_cast<uint32_t>(mask.stream >> 32));
    uint32_t k0 = static_cast<uint32_t>(mask.seed), k1 = static_cast<uint32_t>(mask.seed >> 32);
    for (int round = 0; round < 10; ++round) {
      Words h0, l0, h1, l1;
      multiply(c0, 0xD2511F53u, h0, l0);
      multiply(c2, 0xCD9E8D57u, h1, l1);
      c0 = h1 ^ c1 ^ Words(k0);
      c1 = l1;
      c2 = h0 ^ c3 ^ Words(k1);
      c3 = l0;
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    c0.store_aligned(words + l);
    c1.store_aligned(words + 16 + l);
    c2.store_aligned(words + 32 + l);
    c3.store_aligned(words + 48 + l);
  }
}

// The inner loops are plain: compilers turn them into masked vectors.
template <class T>
void apply(const DropoutMask& mask, int64_t first, int64_t n, const T* x, T scale, T* y, bool accumulate) {
  for (int64_t begin = 0; begin < n; begin += kDropoutGroup) {
    alignas(64) uint32_t words[kDropoutGroup];
    philox_group(mask, first + begin / kDropoutGroup, words);
    const int64_t size = n - begin < kDropoutGroup ? n - begin : kDropoutGroup;
    const T* from = x + begin;
    T* to = y + begin;
    if (accumulate)
      for (int64_t i = 0; i < size; ++i) to[i] += words[i] >= mask.threshold ? scale * from[i] : T(0);
    else
      for (int64_t i = 0; i < size; ++i) to[i] = words[i] >= mask.threshold ? scale * from[i] : T(0);
  }
}

}  // namespace

extern const DropoutTable dropout_kernels;
const DropoutTable dropout_kernels = {apply<float>, apply<double>};

}  // namespace heed::kernels::HEED_LEVEL

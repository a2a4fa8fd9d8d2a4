// Random words in lanes: Philox4x32-10, like heed::philox in core/random.hpp. Included only by *.kernel.cpp.
#pragma once
#include "../simd/simd.hpp"

namespace heed::kernels::HEED_LEVEL {

// 32-bit words in 64-bit lanes, so that a lane holds the whole product of two words. The upper halves are ignored.
using Words = Batch<uint64_t>;

// The 64-bit products of the lower halves. Gap: xsimd has no such product of 32-bit words.
inline Words multiply_low(Words x, Words y) {
#if defined(__AVX512F__)
  return _mm512_mul_epu32(x, y);
#elif defined(__AVX2__)
  return _mm256_mul_epu32(x, y);
#elif defined(__SSE2__)
  return _mm_mul_epu32(x, y);
#elif defined(__aarch64__)
  return vmull_u32(vmovn_u64(x), vmovn_u64(y));
#else
  alignas(64) uint64_t a[kWidth<uint64_t>], b[kWidth<uint64_t>];
  x.store_aligned(a);
  y.store_aligned(b);
  for (int i = 0; i < kWidth<uint64_t>; ++i) a[i] = (a[i] & 0xffffffffu) * (b[i] & 0xffffffffu);
  return Words::load_aligned(a);
#endif
}

// The two keys of each round.
struct PhiloxKeys {
  uint64_t of_round[10][2];

  explicit PhiloxKeys(uint64_t seed) {
    uint32_t key0 = static_cast<uint32_t>(seed), key1 = static_cast<uint32_t>(seed >> 32);
    for (auto& keys : of_round) {
      keys[0] = key0, keys[1] = key1;
      key0 += 0x9E3779B9u, key1 += 0xBB67AE85u;
    }
  }
};

// The lower half of word[i][j] is word j of philox(seed, counter[i], stream), for the counters in the lanes. Several
// vectors at once hide the latency of the products.
template <int V>
[[gnu::always_inline]] inline void philox(const PhiloxKeys& keys, uint64_t stream, const Words (&counter)[V],
                                          Words (&word)[V][4]) {
  const Words factor0(uint64_t{0xD2511F53}), factor1(uint64_t{0xCD9E8D57});
  unroll<V>([&](auto i) {
    word[i][0] = counter[i], word[i][1] = counter[i] >> 32;
    word[i][2] = Words(stream), word[i][3] = Words(stream >> 32);
  });
  unroll<10>([&](auto round) {
    const Words k0(keys.of_round[round][0]), k1(keys.of_round[round][1]);
    unroll<V>([&](auto i) {
      const Words p0 = multiply_low(word[i][0], factor0), p1 = multiply_low(word[i][2], factor1);
      word[i][0] = (p1 >> 32) ^ word[i][1] ^ k0, word[i][1] = p1;
      word[i][2] = (p0 >> 32) ^ word[i][3] ^ k1, word[i][3] = p0;
    });
  });
}

// words[j][l] = word j of philox(seed, counter(l), stream), for N counters.
template <int N, class Counter>
inline void philox_words(uint64_t seed, uint64_t stream, const Counter& counter, uint32_t (&words)[4][N]) {
  constexpr int w = kWidth<uint64_t>, vectors = (N + w - 1) / w, at_once = vectors % 2 == 0 ? 2 : 1;
  const PhiloxKeys keys(seed);
  alignas(64) uint64_t counters[vectors * w], wide[4][vectors * w];
  for (int l = 0; l < vectors * w; ++l) counters[l] = counter(l);
  for (int l = 0; l < vectors * w; l += at_once * w) {
    Words c[at_once], word[at_once][4];
    unroll<at_once>([&](auto i) { c[i] = load_aligned(counters + l + i * w); });
    philox(keys, stream, c, word);
    unroll<at_once>([&](auto i) {
      unroll<4>([&](auto j) { store_aligned(wide[j] + l + i * w, word[i][j]); });
    });
  }
  for (int j = 0; j < 4; ++j)
    for (int l = 0; l < N; ++l) words[j][l] = static_cast<uint32_t>(wide[j][l]);
}

}  // namespace heed::kernels::HEED_LEVEL

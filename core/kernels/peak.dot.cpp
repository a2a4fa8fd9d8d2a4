// Dot products of pairs of bf16 in registers, for the peak of the avx512_bf16 level.
#include "peak.hpp"

#include "simd/simd.hpp"

namespace heed::kernels::HEED_LEVEL {
namespace {

double peak(long rounds) {
  constexpr int chains = 24;
  __m512 sum[chains];
  const __m512bh x = __m512bh(_mm512_set1_epi32(0x3f803f80));
  unroll<chains>([&](auto i) { sum[i] = _mm512_set1_ps(static_cast<float>(i)); });
  for (long r = 0; r < rounds; ++r)
    unroll<chains>([&](auto i) {
      sum[i] = _mm512_dpbf16_ps(sum[i], x, x);
      asm volatile("" : "+v"(sum[i]));
    });
  return 4.0 * 16 * chains * static_cast<double>(rounds);
}

}  // namespace

extern const PeakLoop bf16_peak;
const PeakLoop bf16_peak = peak;

}  // namespace heed::kernels::HEED_LEVEL

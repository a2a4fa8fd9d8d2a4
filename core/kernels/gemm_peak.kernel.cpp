#include "gemm_peak.hpp"

#include "gemm_tile.hpp"

namespace heed::kernels::HEED_LEVEL {
namespace {

// Enough independent chains to hide the latency of a multiply-add at two a cycle, few enough for 16 registers.
#if defined(__AVX512F__)
constexpr int kChains = 24;  // the bf16 dot product takes longest
#else
constexpr int kChains = 12;
#endif

template <class T>
void keep(Batch<T>& v) {
  typename Batch<T>::register_type r = v;
#if defined(__SSE2__)
  asm volatile("" : "+v"(r));
#else
  asm volatile("" : "+w"(r));
#endif
  v = r;
}

template <class T>
double peak(long rounds) {
  Batch<T> sum[kChains], x(T(0.999)), y(T(1e-3));
  unroll<kChains>([&](auto i) { sum[i] = Batch<T>(T(i)); });
  for (long r = 0; r < rounds; ++r)
    unroll<kChains>([&](auto i) {
      sum[i] = fma(sum[i], x, y);
      keep<T>(sum[i]);
    });
  return 2.0 * kWidth<T> * kChains * static_cast<double>(rounds);
}

#if defined(__AVX512BF16__)
double peak_bfloat16(long rounds) {
  __m512 sum[kChains];
  const __m512bh x = __m512bh(_mm512_set1_epi32(0x3f803f80));
  unroll<kChains>([&](auto i) { sum[i] = _mm512_set1_ps(static_cast<float>(i)); });
  for (long r = 0; r < rounds; ++r)
    unroll<kChains>([&](auto i) {
      sum[i] = _mm512_dpbf16_ps(sum[i], x, x);
      asm volatile("" : "+v"(sum[i]));
    });
  return 4.0 * 16 * kChains * static_cast<double>(rounds);
}
constexpr auto bf16_loop = peak_bfloat16;
#else
constexpr double (*bf16_loop)(long) = nullptr;
#endif

}  // namespace

extern const PeakTable gemm_peak;
const PeakTable gemm_peak = {peak<float>, peak<double>, bf16_loop};

}  // namespace heed::kernels::HEED_LEVEL

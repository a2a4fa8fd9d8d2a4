// Multiply-adds of float and double in registers, for the peak of one level.
#include "peak.hpp"

#include "simd/simd.hpp"

namespace heed::kernels::HEED_LEVEL {
namespace {

// Enough independent chains to hide the latency of a multiply-add at two per cycle, and few enough for 16 registers
// (AVX-512 has 32).
#if defined(__AVX512F__)
constexpr int kChains = 24;
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

}  // namespace

extern const PeakTable peak_table;
const PeakTable peak_table = {peak<float>, peak<double>};

}  // namespace heed::kernels::HEED_LEVEL

// Sums of products of rows. A block of columns stays in registers while all terms are added.
#include "depthwise.hpp"

#include "simd/simd.hpp"
//
#include "simd/sweep.hpp"

namespace heed::kernels::HEED_LEVEL {
namespace {

// Vectors per block: enough independent sums to hide the latency of an addition.
constexpr int kVectors = 4;

template <class T>
void add_terms(const DepthwiseSum<T>& s) {
  constexpr int64_t kBlock = kVectors * kWidth<T>;
  int64_t first = 0;
  for (; first + kBlock <= s.n; first += kBlock) {
    Batch<T> sums[kVectors];
    for (int v = 0; v < kVectors; ++v)
      sums[v] = s.start == nullptr ? Batch<T>(T(0)) : load(s.start + first + v * kWidth<T>);
    for (int64_t t = 0; t < s.count; ++t) {
      const T *a = s.terms[t].a + first, *b = s.terms[t].b + first;
      for (int v = 0; v < kVectors; ++v) sums[v] = sums[v] + load(a + v * kWidth<T>) * load(b + v * kWidth<T>);
    }
    for (int v = 0; v < kVectors; ++v) store(s.to + first + v * kWidth<T>, sums[v]);
  }
  sweep<T>(s.n - first, [&](int64_t j, auto at) {
    Batch<T> sum = s.start == nullptr ? Batch<T>(T(0)) : at.load(s.start + first + j);
    for (int64_t t = 0; t < s.count; ++t)
      sum = sum + at.load(s.terms[t].a + first + j) * at.load(s.terms[t].b + first + j);
    at.store(s.to + first + j, sum);
  });
}

}  // namespace

extern const DepthwiseTable depthwise_table;
const DepthwiseTable depthwise_table = {add_terms<float>, add_terms<double>};

}  // namespace heed::kernels::HEED_LEVEL

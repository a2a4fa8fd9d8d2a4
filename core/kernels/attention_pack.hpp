// Copies of rows into the nearest cache. Included only by attention.kernel.cpp.
#pragma once
#include "attention_softmax.hpp"
#include "rows.hpp"

namespace heed::kernels::HEED_LEVEL::attention {

// Rows of heads lie far apart in a fused projection, where no hardware prefetcher follows: asks for rows [begin, end).
template <class T>
inline void prefetch_rows(const HeadRows<T>& x, long b, long h, long begin, long end, long width) {
  if (x.data == nullptr) return;
  for (long i = begin; i < end; ++i) {
    const char* row = reinterpret_cast<const char*>(row_of(x, b, h, i));
    for (long byte = 0; byte < width * static_cast<long>(sizeof(T)); byte += 64) __builtin_prefetch(row + byte, 0, 2);
  }
}

// Part `t` of `parts` of rows [begin, end): prefetching is spread over the tiles of the work before.
struct Share {
  long begin, end;
};
inline Share share_of(long begin, long end, long t, long parts) {
  return {begin + (end - begin) * t / parts, begin + (end - begin) * (t + 1) / parts};
}

// One row, zeros up to a whole vector. `non_finite` becomes NaN in a lane where a value is not finite.
template <class T>
inline void copy_row(const T* from, long n, T* to, Batch<T>& non_finite) {
  for (long c = 0; c < n; c += kWidth<T>) {
    const Batch<T> x = get_lanes(from + c, n - c);
    store_aligned(to + c, x);
    non_finite = fma(x, Batch<T>(T(0)), non_finite);
  }
}

// Keys or values [begin, begin + n) of a head; zeros for masked keys. Returns whether all are finite.
template <class T>
inline bool pack_keys(const AttentionProblem<T>& p, const HeadRows<const T>& x, long b, long h, long begin, long n,
                      long width, T* to) {
  const long stride = whole_vectors<T>(width);
  const uint8_t* key_mask = p.key_mask == nullptr ? nullptr : p.key_mask + b * p.keys + begin;
  Batch<T> non_finite(T(0));
  for (long j = 0; j < n; ++j) {
    if (key_mask == nullptr || key_mask[j] != 0)
      copy_row(row_of(x, b, h, begin + j), width, to + j * stride, non_finite);
    else
      clear(to + j * stride, width);
  }
  return !any(isnan(non_finite));
}

// NaN of the values a [keys, a_stride] to the sums c [width, lanes] of the queries that see them: all whose score is
// not -inf, also where the weight will be 0.
template <class T>
[[gnu::noinline]] void spread_nans(const T* a, long a_stride, const T* scores, long lanes, long keys, long width,
                                   T* c) {
  for (long j = 0; j < keys; ++j)
    for (long d = 0; d < width; ++d) {
      const T value = a[j * a_stride + d];
      for (long i = 0; value != value && i < lanes; ++i)
        if (scores[j * lanes + i] != -kInfinity<T>) c[d * lanes + i] = value;
    }
}

}  // namespace heed::kernels::HEED_LEVEL::attention

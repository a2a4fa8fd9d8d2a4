// Rows of heads in memory, and pieces of scratch memory. Included only by *.kernel.cpp.
#pragma once
#include "../gemm/fetch.hpp"
#include "../simd/lane_sums.hpp"
#include "head_rows.hpp"

namespace heed::kernels::HEED_LEVEL {

// Hands out aligned pieces of the driver's scratch memory. With a null base, only counts elements.
template <class T>
struct Pieces {
  T* base;
  size_t used = 0;
  T* take(long n) {
    T* p = base == nullptr ? nullptr : base + used;
    used += static_cast<size_t>((n + 15) / 16 * 16);
    return p;
  }
  // Room for n elements of type E, which is no larger than T.
  template <class E>
  E* take_as(long n) {
    static_assert(sizeof(E) <= sizeof(T));
    return reinterpret_cast<E*>(take(n));
  }
};

// Elements of scratch that a problem needs. The constructor of Scratch takes its pieces.
template <class T, class Scratch, class Problem>
size_t scratch_size(const Problem& p) {
  Pieces<T> pieces{nullptr};
  [[maybe_unused]] const Scratch scratch(p, pieces);
  return pieces.used;
}

// n rounded up to whole vectors.
template <class T>
inline long whole_vectors(long n) {
  return (n + kWidth<T> - 1) / kWidth<T> * kWidth<T>;
}

// How many of the n remaining elements the next vector holds.
template <class T>
inline int lanes_of(long n) {
  return static_cast<int>(n < kWidth<T> ? n : kWidth<T>);
}

template <class T>
inline T* row_of(const HeadRows<T>& x, long b, long h, long i) {
  return x.data + b * x.batch + h * x.head + i * x.row;
}

// Rows [first, first + n) of head (b, h).
struct HeadPart {
  long b, h, first, n;
};

// Adds rows of a head to `fetch`. In a fused projection the rows of a head are far from each other, and no hardware
// prefetcher follows.
template <class T>
inline void fetch_rows(Fetch& fetch, const HeadRows<T>& x, const HeadPart& at, long width) {
  if (x.data != nullptr) fetch.to_read(row_of(x, at.b, at.h, at.first), x.row, at.n, width);
}
template <class T>
inline void fetch_for_writing(Fetch& fetch, const HeadRows<T>& x, const HeadPart& at, long width) {
  if (x.data != nullptr) fetch.to_write(row_of(x, at.b, at.h, at.first), x.row, at.n, width);
}

// from[0, n) in the first lanes, zeros in the others. If n exceeds the vector, the first vector.
template <class T>
inline Batch<T> get_lanes(const T* from, long n) {
  return n >= kWidth<T> ? load(from) : load_part(from, static_cast<int>(n));
}

// to[0, n) = (or +=, if `add`) the first n lanes. If n exceeds the vector, the first vector.
template <class T>
inline void put_lanes(T* to, Batch<T> x, long n, bool add = false) {
  if (add) x = x + get_lanes(to, n);
  if (n >= kWidth<T>)
    store(to, x);
  else
    store_part(to, x, static_cast<int>(n));
}

// The same, rounded to bf16.
inline void put_lanes(uint16_t* to, Batch<float> x, long n) {
  if (n >= kWidth<float>)
    store_bf16(to, x);
  else
    store_bf16_part(to, x, static_cast<int>(n));
}

// to[0, n) = (or +=, if `add`) factor * from, where `from` is aligned and padded to whole vectors.
template <class T>
inline void put_row(T* to, const T* from, long n, T factor, bool add) {
  for (long c = 0; c < n; c += kWidth<T>) put_lanes(to + c, load_aligned(from + c) * Batch<T>(factor), n - c, add);
}

// Zeros to[0, n), rounded up to whole vectors; `to` is aligned.
template <class T>
inline void clear(T* to, long n) {
  for (long c = 0; c < n; c += kWidth<T>) store_aligned(to + c, Batch<T>(T(0)));
}

// to[0, width) = (or +=, if `accumulate`) factor * a weighted sum of rows. each(add) calls add(weight, row) for every
// row. Up to 4 vectors of the sum stay in registers.
template <class T, class Each>
inline void weighted_sum(T* to, long width, T factor, bool accumulate, const Each& each) {
  constexpr int w = kWidth<T>, tile = 4;
  long c = 0;
  for (; c + tile * w <= width; c += tile * w) {
    Batch<T> sum[tile];
    unroll<tile>([&](auto k) { sum[k] = Batch<T>(T(0)); });
    each([&](T weight, const T* row) {
      const Batch<T> x(weight);
      unroll<tile>([&](auto k) { sum[k] = fma(x, load(row + c + k * w), sum[k]); });
    });
    unroll<tile>([&](auto k) { put_lanes(to + c + k * w, sum[k] * Batch<T>(factor), w, accumulate); });
  }
  for (; c < width; c += w) {
    Batch<T> sum(T(0));
    each([&](T weight, const T* row) { sum = fma(Batch<T>(weight), get_lanes(row + c, width - c), sum); });
    put_lanes(to + c, sum * Batch<T>(factor), width - c, accumulate);
  }
}

}  // namespace heed::kernels::HEED_LEVEL

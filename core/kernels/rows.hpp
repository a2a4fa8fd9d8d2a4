// Rows of heads in memory, and pieces of scratch. Included only by *.kernel.cpp.
#pragma once
#include "head_rows.hpp"
#include "simd.hpp"

namespace heed::kernels::HEED_LEVEL {

// Hands out aligned pieces of the scratch that the driver gives; counts only where that is null.
template <class T>
struct Pieces {
  T* base;
  size_t used = 0;
  T* take(long n) {
    T* p = base == nullptr ? nullptr : base + used;
    used += static_cast<size_t>((n + 15) / 16 * 16);
    return p;
  }
};

template <class T>
inline long whole_vectors(long n) {
  return (n + kWidth<T> - 1) / kWidth<T> * kWidth<T>;
}

// Of n elements from here on, those that the next vector holds.
template <class T>
inline int lanes_of(long n) {
  return static_cast<int>(n < kWidth<T> ? n : kWidth<T>);
}

template <class T>
inline T* row_of(const HeadRows<T>& x, long b, long h, long i) {
  return x.data + b * x.batch + h * x.head + i * x.row;
}

// The first n lanes to p[0, n).
template <class T>
inline void put_lanes(T* to, Batch<T> x, int n) {
  if (n == kWidth<T>)
    store(to, x);
  else
    store_part(to, x, n);
}

}  // namespace heed::kernels::HEED_LEVEL

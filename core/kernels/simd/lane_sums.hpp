// Sums over the elements of a row, in the same order on every level: element i is added to lane i mod 16 for float (mod
// 8 for double), whatever the register width. The lanes are then added as a tree of halves: 0 and 8, 1 and 9, ..., then
// 0 and 4, ... Included only by *.kernel.cpp.
#pragma once
#include "simd.hpp"
//
#include "sweep.hpp"

namespace heed::kernels::HEED_LEVEL {

// The lanes of a sum, and the number of registers that hold them: one of AVX-512, two of AVX2, four of 128 bits.
template <class T>
inline constexpr int kSumLanes = 64 / static_cast<int>(sizeof(T));
template <class T>
inline constexpr int kSumParts = kSumLanes<T> / kWidth<T>;

// Rows summed at once, such that their sums stay in registers: `rows` with AVX-512, fewer where a sum takes several
// registers.
template <class T>
inline constexpr int rows_of_sums(int rows) {
  return rows > kSumParts<T> ? rows / kSumParts<T> : 1;
}

// The sum of all lanes, given the parts of a sum.
template <class T>
[[gnu::always_inline]] inline T total_of(const Batch<T> (&part)[kSumParts<T>]) {
  constexpr int parts = kSumParts<T>;
  if constexpr (parts == 1)
    return reduce_add(part[0]);
  else if constexpr (parts == 2)
    return reduce_add(part[0] + part[1]);
  else
    return reduce_add((part[0] + part[2]) + (part[1] + part[3]));
}

// Calls add(i, at, k) for each vector of [0, n), front to back. The constant k is the part of the sum to which the
// vector at i belongs. `at` is Whole or, for the tail, Part.
template <class T, class Add>
[[gnu::always_inline]] inline void sweep_lanes(int64_t n, const Add& add) {
  constexpr int w = kWidth<T>, parts = kSumParts<T>;
  int64_t i = 0;
  for (; i + kSumLanes<T> <= n; i += kSumLanes<T>)
    unroll<parts>([&](auto k) __attribute__((always_inline)) { add(i + k * w, Whole{}, k); });
  unroll<parts>([&](auto k) __attribute__((always_inline)) {
    if constexpr (k + 1 < parts) {
      if (i + w <= n) {
        add(i, Whole{}, k);
        i += w;
        return;
      }
    }
    if (i < n) add(i, Part{static_cast<int>(n - i)}, k);
    i = n;
  });
}

// N sums at once. add(i, at, sum) adds the terms of the elements from i on to sum[0 .. N), vectors of lanes.
template <int N, class T, class Add>
[[gnu::always_inline]] inline void sum_lanes(int64_t n, T (&total)[N], const Add& add) {
  Batch<T> sum[kSumParts<T>][N];
  unroll<kSumParts<T> * N>([&](auto j) __attribute__((always_inline)) { sum[j / N][j % N] = Batch<T>(T(0)); });
  sweep_lanes<T>(n, [&](int64_t i, auto at, auto k) __attribute__((always_inline)) { add(i, at, sum[k]); });
  unroll<N>([&](auto j) __attribute__((always_inline)) {
    Batch<T> part[kSumParts<T>];
    unroll<kSumParts<T>>([&](auto k) __attribute__((always_inline)) { part[k] = sum[k][j]; });
    total[j] = total_of<T>(part);
  });
}

// The sum of f(i, at) over [0, n). f must return 0 in lanes beyond n.
template <class T, class F>
[[gnu::always_inline]] inline T lane_sum(int64_t n, const F& f) {
  T total[1];
  sum_lanes(n, total, [&](int64_t i, auto at, Batch<T>(&sum)[1]) __attribute__((always_inline)) {
    sum[0] = sum[0] + f(i, at);
  });
  return total[0];
}

// The sum of x y over [0, n). read(i, at, x, y) reads one vector of each; in lanes beyond n, x or y must be 0.
template <class T, class Read>
[[gnu::always_inline]] inline T lane_sum_of_products(int64_t n, const Read& read) {
  T total[1];
  sum_lanes(n, total, [&](int64_t i, auto at, Batch<T>(&sum)[1]) __attribute__((always_inline)) {
    Batch<T> x, y;
    read(i, at, x, y);
    sum[0] = fma(x, y, sum[0]);
  });
  return total[0];
}

// to[k] = x . rows[k] for N rows of n elements of type T or bf16. The order of each sum does not depend on N.
template <int N, class T, class S>
[[gnu::always_inline]] inline void lane_dots(const S* x, const S* const (&rows)[N], int64_t n, T* to) {
  T total[N];
  sum_lanes(
      n, total, [&](int64_t i, auto at, Batch<T>(&sum)[N]) __attribute__((always_inline)) {
        const Batch<T> u = at.template load_as<T>(x + i);
        unroll<N>([&](auto k) { sum[k] = fma(u, at.template load_as<T>(rows[k] + i), sum[k]); });
      });
  for (int k = 0; k < N; ++k) to[k] = total[k];
}

// x . y of n elements. x is memory of type T or bf16.
template <class T, class S>
inline T lane_dot(const S* x, const T* y, int64_t n) {
  return lane_sum_of_products<T>(n, [=](int64_t i, auto at, Batch<T>& u, Batch<T>& v) __attribute__((always_inline)) {
    u = at.template load_as<T>(x + i), v = at.load(y + i);
  });
}

}  // namespace heed::kernels::HEED_LEVEL

// Products of at most kFewRows rows: limited by the reading of b, so that b is read once, in place, in long runs.
// Included only by *.kernel.cpp.
#pragma once
#include "gemm_pack.hpp"

namespace heed::kernels::HEED_LEVEL {

// One element or vector of sums to c: alpha * sum (+ c) (+ bias).
template <class T>
inline void finish_few(const GemmProblem& g, long i, long j, T sum, bool first, bool last) {
  T* c = static_cast<T*>(g.c) + i * g.ldc + j;
  T y = sum * static_cast<T>(g.alpha);
  if (!first || g.add) y += *c;
  if (last && g.bias != nullptr) y += static_cast<const T*>(g.bias)[j];
  *c = y;
}

// sum[i][0, columns) += a[i, p .. p + steps) b[p .. p + steps, 0 .. columns)
template <class T, class A, class B, int kSteps, int kStrip>
inline void add_rows(const GemmProblem& g, long p, const B* b, int columns, T (*sum)[kStrip]) {
  constexpr int w = kWidth<T>;
  Batch<T> x[kFewRows][kSteps];
  for (long i = 0; i < g.m; ++i)
    for (int s = 0; s < kSteps; ++s)
      x[i][s] = Batch<T>(element<T>(static_cast<const A*>(g.a) + i * g.a_row + (p + s) * g.a_column));
  for (int j = 0; j < columns; j += w) {
    const int left = columns - j;
    Batch<T> y[kSteps];
    unroll<kSteps>([&](auto s) {
      const B* line = b + (p + s) * g.b_row + j;
      y[s] = left >= w ? load_as<T>(line) : load_as_part<T>(line, left);
    });
    for (long i = 0; i < g.m; ++i) {
      Batch<T> v = load_aligned(&sum[i][j]);
      unroll<kSteps>([&](auto s) { v = fma(x[i][s], y[s], v); });
      store_aligned(&sum[i][j], v);
    }
  }
}

// b's columns are contiguous: sums of a strip of columns stay in the nearest cache while k runs.
template <class T, class A, class B>
inline void few_by_rows(const GemmProblem& g, long begin, long end) {
  constexpr int strip = 256;
  alignas(64) T sum[kFewRows][strip];
  for (long j0 = begin; j0 < end; j0 += strip) {
    const int columns = static_cast<int>(end - j0 < strip ? end - j0 : strip);
    memset(sum, 0, sizeof sum);
    const B* b = static_cast<const B*>(g.b) + j0;
    long p = 0;
    for (; p + 4 <= g.k; p += 4) add_rows<T, A, B, 4, strip>(g, p, b, columns, sum);
    for (; p < g.k; ++p) add_rows<T, A, B, 1, strip>(g, p, b, columns, sum);
    for (long i = 0; i < g.m; ++i)
      for (int j = 0; j < columns; ++j) finish_few(g, i, j0 + j, sum[i][j], true, true);
  }
}

// Dot products of R rows of a, copied to x, with the rows [j, j + 4) of b^T.
template <class T, class B, int R>
inline void dot_products(const GemmProblem& g, const T* x, long ld, long p0, long depth, long j, long columns) {
  constexpr int w = kWidth<T>, n = 4;
  Batch<T> sum[R][n];
  for (int i = 0; i < R; ++i)
    for (int s = 0; s < n; ++s) sum[i][s] = Batch<T>(T(0));
  const B* line[n];
  for (int s = 0; s < n; ++s)  // those beyond the end repeat the last, and are thrown away
    line[s] = static_cast<const B*>(g.b) + (j + (s < columns ? s : columns - 1)) * g.b_column + p0;
  const auto step = [&](long p, auto read) {
    Batch<T> y[n];
    for (int s = 0; s < n; ++s) y[s] = read(line[s] + p);
    for (int i = 0; i < R; ++i) {
      const Batch<T> v = load_aligned(x + i * ld + p);
      for (int s = 0; s < n; ++s) sum[i][s] = fma(v, y[s], sum[i][s]);
    }
  };
  long p = 0;
  for (; p + w <= depth; p += w) step(p, [](const B* b) { return load_as<T>(b); });
  const int left = static_cast<int>(depth - p);
  if (left > 0) step(p, [left](const B* b) { return load_as_part<T>(b, left); });
  const bool last = p0 + depth == g.k;
  for (int i = 0; i < R; ++i)
    for (int s = 0; s < columns && s < n; ++s) finish_few(g, i, j + s, reduce_add(sum[i][s]), p0 == 0, last);
}

// b's rows are contiguous.
template <class T, class A, class B>
inline void few_by_columns(const GemmProblem& g, long begin, long end) {
  constexpr long depth = 1024;
  alignas(64) T x[kFewRows][depth];
  long p = 0;
  do {  // once even for k = 0
    const long count = g.k - p < depth ? g.k - p : depth;
    for (long i = 0; i < g.m; ++i) {
      const A* a = static_cast<const A*>(g.a) + i * g.a_row + p * g.a_column;
      for (long s = 0; s < count; ++s) x[i][s] = element<T>(a + s * g.a_column);
      for (long s = count; s % kWidth<T> != 0; ++s) x[i][s] = T(0);
    }
    for (long j = begin; j < end; j += 4) {
      const long columns = end - j;
      switch (g.m) {
        case 1: dot_products<T, B, 1>(g, x[0], depth, p, count, j, columns); break;
        case 2: dot_products<T, B, 2>(g, x[0], depth, p, count, j, columns); break;
        case 3: dot_products<T, B, 3>(g, x[0], depth, p, count, j, columns); break;
        default: dot_products<T, B, 4>(g, x[0], depth, p, count, j, columns); break;
      }
    }
    p += depth;
  } while (p < g.k);
}

template <class T, class A, class B>
inline void few_rows_as(const GemmProblem& g, long begin, long end) {
  if (g.b_row == 1)
    few_by_columns<T, A, B>(g, begin, end);
  else
    few_by_rows<T, A, B>(g, begin, end);
}

}  // namespace heed::kernels::HEED_LEVEL

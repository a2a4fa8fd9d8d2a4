// Products of few rows: limited by the reading of b, so that b is read once, in place, in long runs. Included only by
// *.kernel.cpp.
#pragma once
#include "gemm_pack.hpp"

namespace heed::kernels::HEED_LEVEL {

// One sum to c: alpha * sum (+ c) (+ bias).
template <class T>
inline void finish_few(const GemmProblem& g, long i, long j, T sum) {
  T* c = static_cast<T*>(g.c) + i * g.ldc + j;
  T y = sum * static_cast<T>(g.alpha);
  if (g.add) y += *c;
  if (g.bias != nullptr) y += static_cast<const T*>(g.bias)[j];
  *c = y;
}

// ---- b's columns are contiguous ----


// sum[i][0, columns) += a[i, p .. p + steps) b[p .. p + steps, 0 .. columns)
template <class T, class A, class B, int kSteps, int kStrip>
inline void add_rows(const GemmProblem& g, long p, const B* b, int columns, T (*sum)[kStrip]) {
  constexpr int w = kWidth<T>;
  Batch<T> x[kFewRowsAcross][kSteps];
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

// Sums of a strip of columns stay in the nearest cache while k runs.
template <class T, class A, class B>
inline void few_by_rows(const GemmProblem& g, long begin, long end) {
  constexpr int strip = 256;
  alignas(64) T sum[kFewRowsAcross][strip];
  for (long j0 = begin; j0 < end; j0 += strip) {
    const int columns = static_cast<int>(end - j0 < strip ? end - j0 : strip);
    memset(sum, 0, sizeof sum);
    const B* b = static_cast<const B*>(g.b) + j0;
    long p = 0;
    for (; p + 4 <= g.k; p += 4) add_rows<T, A, B, 4, strip>(g, p, b, columns, sum);
    for (; p < g.k; ++p) add_rows<T, A, B, 1, strip>(g, p, b, columns, sum);
    for (long i = 0; i < g.m; ++i)
      for (int j = 0; j < columns; ++j) finish_few(g, i, j0 + j, sum[i][j]);
  }
}

// ---- b's rows are contiguous ----

// v, which the compiler may not read from memory anew for each of its uses.
template <class T>
inline Batch<T> kept_in_register(Batch<T> v) {
#if defined(__x86_64__)
  typename Batch<T>::register_type r = v;
  asm("" : "+v"(r));
  return r;
#else
  return v;
#endif
}

// Rows of a that share what is read of b, and of how many of these b's columns are taken four at once, and not three:
// as many sums as the registers hold.
template <class T>
inline constexpr int kFewGroup = kWidth<T> * sizeof(T) == 64 ? 8 : 4;
template <class T>
inline constexpr int kFewByFour = kWidth<T> * sizeof(T) == 64 ? 6 : 2;

// sum[i][j] += a_i[p ..] b_j[p ..], one vector of each, as `read` reads it. Inlined, so that sums stay in registers.
template <class T, class B, int R, int C, class Read>
[[gnu::always_inline]] inline void add_vectors(Batch<T> (&sum)[R][C], const T* a, long a_row, const B* const (&b)[C],
                                               long p, const Read& read) {
  Batch<T> y[C];
  unroll<C>([&](auto j) { y[j] = read(b[j] + p); });
  unroll<R>([&](auto i) {
    const Batch<T> x = kept_in_register(read(a + i * a_row + p));
    unroll<C>([&](auto j) { sum[i][j] = fma(x, y[j], sum[i][j]); });
  });
}

// c[row .. row + R, column(0 .. C)] from the dot products of rows of a with rows of b^T: lanes run along k. Each sum
// has an order of its own, whatever R and C are.
template <class T, class B, int R, int C>
[[gnu::noinline]] inline void dot_products(const GemmProblem& g, long row, const long (&column)[C], int columns) {
  constexpr int w = kWidth<T>;
  const T* a = static_cast<const T*>(g.a) + row * g.a_row;
  const long a_row = g.a_row, k = g.k;
  const B* b[C];
  unroll<C>([&](auto j) { b[j] = static_cast<const B*>(g.b) + column[j] * g.b_column; });
  Batch<T> sum[R][C];
  unroll<R>([&](auto i) { unroll<C>([&](auto j) { sum[i][j] = Batch<T>(T(0)); }); });
  long p = 0;
  for (; p + w <= k; p += w)
    add_vectors<T, B, R, C>(sum, a, a_row, b, p, [](const auto* from) { return load_as<T>(from); });
  const int left = static_cast<int>(k - p);
  if (left > 0)
    add_vectors<T, B, R, C>(sum, a, a_row, b, p, [left](const auto* from) { return load_as_part<T>(from, left); });
  unroll<R>([&](auto i) {
    unroll<C>([&](auto j) {
      if (j < columns) finish_few(g, row + i, column[j], reduce_add(sum[i][j]));
    });
  });
}

// The rows [row, row + rows) of these columns.
template <class T, class B, int C, int R = C == 4 ? kFewByFour<T> : kFewGroup<T>>
inline void dot_rows(const GemmProblem& g, long row, int rows, const long (&column)[C], int columns) {
  if (rows == R)
    dot_products<T, B, R, C>(g, row, column, columns);
  else if constexpr (R > 1)
    dot_rows<T, B, C, R - 1>(g, row, rows, column, columns);
}

// C columns at once that lie far apart: each is the next of a long run, which the processor fetches ahead. Of C
// neighbours it would only know that the run of one has ended.
template <class T, class B, int C>
inline void dot_columns(const GemmProblem& g, long begin, long end, long group) {
  const long apart = (end - begin + C - 1) / C;
  for (long j = begin; j < begin + apart; ++j) {
    long column[C];
    int columns = 0;
    for (int s = 0; s < C; ++s) {
      column[s] = j + s * apart;
      if (column[s] < end)
        columns = s + 1;
      else  // repeats the last, and is thrown away
        column[s] = end - 1;
    }
    for (long row = 0; row < g.m; row += group)
      dot_rows<T, B, C>(g, row, static_cast<int>(g.m - row < group ? g.m - row : group), column, columns);
  }
}

// a is dense: see dense_rows.
template <class T, class B>
inline void few_by_columns(const GemmProblem& g, long begin, long end) {
  const long groups = (g.m + kFewGroup<T> - 1) / kFewGroup<T>, group = (g.m + groups - 1) / groups;
  if (group <= kFewByFour<T>)
    dot_columns<T, B, 4>(g, begin, end, group);
  else
    dot_columns<T, B, 3>(g, begin, end, group);
}

// out [m, k]: a, of c's type.
template <class T, class A>
inline void dense_rows(const GemmProblem& g, void* out) {
  for (long i = 0; i < g.m; ++i) {
    const A* a = static_cast<const A*>(g.a) + i * g.a_row;
    T* to = static_cast<T*>(out) + i * g.k;
    for (long p = 0; p < g.k; ++p) to[p] = element<T>(a + p * g.a_column);
  }
}

}  // namespace heed::kernels::HEED_LEVEL

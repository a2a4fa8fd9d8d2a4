// Sums of products of small matrices, such as O = Q S + A V. All products of a tile of the result run one after another
// while the tile's sums stay in registers. For a triangle, only the part that a tile of rows needs is read. Included
// only by chunk.hpp.
#pragma once
#include "../gemm/tile.hpp"

namespace heed::kernels::HEED_LEVEL::linear {

// A right factor [depth, columns], stored by row, or in panels of kPanel<T> columns, [depth, kPanel<T>] each.
template <class T>
struct Right {
  const T* data;
  long stride, panel;  // elements from row to row, and from panel to panel
  const T* at(long p, long j) const { return data + p * stride + j / kPanel<T> * panel + j % kPanel<T>; }
};
template <class T>
inline Right<T> by_row(const T* data, long stride) {
  return {data, stride, kPanel<T>};
}

// The nonzero part of a left factor: all, the part not right of the diagonal, or the part not left of it.
enum class Nonzero { all, lower, upper };

// A term x y of a sum. x [rows, depth] is stored by row or by column, `stride` elements apart.
template <class T, Order kOrder, Nonzero kNonzero = Nonzero::all>
struct Term {
  const T* x;
  long stride;
  Right<T> y;
  long depth;
};

// sum += rows [i, i + R) of x times columns [j, j + V vectors) of y.
template <int R, int V, class T, Order kOrder, Nonzero kNonzero>
[[gnu::always_inline]] inline void add_term(Batch<T> (&sum)[R][V], const Term<T, kOrder, kNonzero>& term, long i,
                                            long j) {
  constexpr int w = kWidth<T>;
  long p = kNonzero == Nonzero::upper ? i : 0;
  const long end = kNonzero == Nonzero::lower && i + R < term.depth ? i + R : term.depth, stride = term.stride;
  const T *x = term.x + (kOrder == Order::by_row ? i * stride + p : p * stride + i), *y = term.y.at(p, j);
  for (; p < end; ++p) {
    Batch<T> row[V];
    unroll<V>([&](auto v) { row[v] = load_aligned(y + v * w); });
    unroll<R>([&](auto r) {
      const Batch<T> factor(kOrder == Order::by_row ? x[r * stride] : x[r]);
      unroll<V>([&](auto v) { sum[r][v] = fma(factor, row[v], sum[r][v]); });
    });
    x += kOrder == Order::by_row ? 1 : stride;
    y += term.y.stride;
  }
}

// Rows of the largest tile.
template <class T>
inline constexpr int kSumRows = kWidth<T> * sizeof(T) == 64 ? 8 : 6;

// Computes rows [i, rows) of the V vectors of columns from j on. finish(i, j, x) receives the vector of row i from
// column j on.
template <class T, int V, int R = kSumRows<T>, class Finish, class... Terms>
[[gnu::noinline]] void sum_rows(long i, long rows, long j, Fetch* fetch, Finish finish, Terms... terms) {
  for (; i + R <= rows; i += R) {
    if (fetch != nullptr) fetch->prefetch_next();
    Batch<T> sum[R][V];
    unroll<R>([&](auto r) { unroll<V>([&](auto v) { sum[r][v] = Batch<T>(T(0)); }); });
    (add_term(sum, terms, i, j), ...);
    unroll<R>([&](auto r) { unroll<V>([&](auto v) { finish(i + r, j + v * kWidth<T>, sum[r][v]); }); });
  }
  if constexpr (R > 1) {
    if (i < rows) sum_rows<T, V, (R > 4 ? 4 : R / 2)>(i, rows, j, fetch, finish, terms...);
  }
}

// Computes the sum of the terms, [rows, columns], with columns in whole vectors.
template <class T, class Finish, class... Terms>
inline void sum_products(long rows, long columns, Fetch* fetch, Finish finish, Terms... terms) {
  constexpr long w = kWidth<T>;
  for (long j = 0; j < columns; j += kPanel<T>)
    if (columns - j > w)
      sum_rows<T, 2>(0, rows, j, fetch, finish, terms...);
    else
      sum_rows<T, 1>(0, rows, j, fetch, finish, terms...);
}

// Computes the vectors of a product [n, n] on and left of the diagonal. Right of the diagonal, computes as many as a
// term reads of a lower triangle or, by column, of an upper one.
template <class T, class Finish>
inline void lower_product(long n, Fetch* fetch, Finish finish, Term<T, Order::by_row> term) {
  for (long j = 0; j < n; j += kWidth<T>) sum_rows<T, 1>(j / kSumRows<T> * kSumRows<T>, n, j, fetch, finish, term);
}

template <class T>
inline long whole_panels(long n) {
  return (n + kPanel<T> - 1) / kPanel<T> * kPanel<T>;
}
// y^T for y [n, depth], in panels, as a right factor [depth, n]. `to` has room for whole_panels(n) columns.
template <class T>
inline Right<T> transposed(const T* y, long stride, long n, long depth, T* to) {
  constexpr long w = kWidth<T>;
  const Right<T> right{to, kPanel<T>, depth * kPanel<T>};
  for (long r = 0; r < n; r += w) {
    const T* from = y + r * stride;
    T* out = to + r / kPanel<T> * right.panel + r % kPanel<T>;
    const auto put = [&](long c, Batch<T> x) { store_aligned(out + c * kPanel<T>, x); };
    long c = 0;
    for (; n - r >= w && depth - c >= w; c += w) {
      Batch<T> x[w];
      unroll<w>([&](auto i) { x[i] = load_aligned(from + i * stride + c); });
      transpose_lanes<T>(x);
      unroll<w>([&](auto i) { put(c + i, x[i]); });
    }
    if (c < depth)
      transpose<T>(from + c, stride, n - r < w ? n - r : w, depth - c, w,
                   [&](long i, long, Batch<T> x, int) { put(c + i, x); });
  }
  return right;
}

}  // namespace heed::kernels::HEED_LEVEL::linear

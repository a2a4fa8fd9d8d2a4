// Products and triangular systems of a block. The sum of each element runs in one order, whatever the tile. Included
// only by kernels of gated attention.
#pragma once
#include "../linear_attention/rows.hpp"

namespace heed::kernels::HEED_LEVEL::gated {

using linear::by_row;
using linear::kSumRows;
using linear::lower_product;
using linear::lower_times;
using linear::Nonzero;
using linear::Panel;
using linear::Right;
using linear::take_panel;
using linear::Term;
using linear::times;
using linear::transposed;
using linear::upper_times;

// Vectors of columns per tile. float64 has narrow tiles, which compile faster.
template <class T>
inline constexpr int kTile = sizeof(T) == 4 ? 2 : 1;

// Calls f(column, vectors) for the tiles of `columns` columns; `vectors` is a constant.
template <class T, class F>
[[gnu::always_inline]] inline void each_tile(long columns, const F& f) {
  for (long j = 0; j < columns; j += kTile<T> * kWidth<T>)
    if (kTile < T >> 1 && columns - j > kWidth<T>)
      f(j, std::integral_constant<int, kTile<T>>{});
    else
      f(j, std::integral_constant<int, 1>{});
}

// ---- Products ----

// What a product is added to and where it is stored: to = scale * (sum + f * x + g * y), rows i times f[i] and g[i].
// Null f and g: ones.
template <class T>
struct RowsTo {
  T* to;
  long stride, columns;
  bool add = false;  // adds to the values of `to`
  T scale = 1;
  Panel<T> x = {}, y = {};  // null data: none
  const T *f = nullptr, *g = nullptr;

  void operator()(long i, long j, Batch<T> sum) const {
    if (x.data != nullptr) sum = fma(Batch<T>(f == nullptr ? T(1) : f[i]), load_aligned(x.row(i) + j), sum);
    if (y.data != nullptr) sum = fma(Batch<T>(g == nullptr ? T(1) : g[i]), load_aligned(y.row(i) + j), sum);
    put_lanes(to + i * stride + j, Batch<T>(scale) * sum, columns - j, add);
  }
};

// All products of a block whose rows are positions, or rows of a state, are of this form, so that it is compiled once:
// x y + L1 z1 + L2^T z2 + L3^T z3 with lower triangles L. Absent terms have depth 0.
template <class T>
struct RowTerms {
  Term<T, Order::by_row> all = {};
  Term<T, Order::by_row, Nonzero::lower> lower = {};
  Term<T, Order::by_column, Nonzero::upper> upper[2] = {};
};

template <class T>
[[gnu::noinline]] void row_product(long rows, long columns, const RowTerms<T>& x, const RowsTo<T>& to) {
  each_tile<T>(columns, [&](long j, auto vectors) {
    linear::sum_rows<T, vectors>(0, rows, j, nullptr, to, x.all, x.lower, x.upper[0], x.upper[1]);
  });
}

// s <- f * s + x1^T y1 + x2^T y2 for a state s, whose row r is multiplied by f[r * f_stride].
template <class T>
struct StateTo {
  Panel<T> s;
  const T* f;
  long f_stride;

  void operator()(long i, long j, Batch<T> sum) const {
    store_aligned(s.row(i) + j, fma(Batch<T>(f[i * f_stride]), load_aligned(s.row(i) + j), sum));
  }
};
template <class T>
[[gnu::noinline]] void state_product(long rows, long columns, const Term<T, Order::by_column>& a,
                                     const Term<T, Order::by_column>& b, const StateTo<T>& to) {
  each_tile<T>(columns, [&](long j, auto vectors) { linear::sum_rows<T, vectors>(0, rows, j, nullptr, to, a, b); });
}

// ---- Triangular systems ----

// W = V - Kg S - N U and U = b * W, for rows [0, n).
template <class T>
struct ForwardSystem {
  Panel<T> kg, s, n;  // [rows, width], [width, value_width], [rows, rows]
  Panel<T> w, u;      // w holds V before
  const T* beta;      // [rows]
  long width;
};

template <class T, int V, int R = kSumRows<T>>
[[gnu::noinline]] void solve_rows(long i, long rows, long j, const ForwardSystem<T>& x) {
  constexpr int w = kWidth<T>;
  for (; i + R <= rows; i += R) {
    Batch<T> sum[R][V];
    unroll<R>([&](auto r) { unroll<V>([&](auto v) { sum[r][v] = Batch<T>(T(0)); }); });
    add_term(sum, times(x.kg, x.s.right(), x.width), i, j);
    add_term(sum, times(x.n, x.u.right(), i), i, j);
    unroll<R>([&](auto at) __attribute__((always_inline)) {
      constexpr int r = at;
      const Batch<T> b(x.beta[i + r]);
      Batch<T> u[V];
      unroll<V>([&](auto v) {
        T* to = x.w.row(i + r) + j + v * w;
        const Batch<T> rest = load_aligned(to) - sum[r][v];
        store_aligned(to, rest);
        u[v] = b * rest;
        store_aligned(x.u.row(i + r) + j + v * w, u[v]);
      });
      unroll<R>([&](auto later) __attribute__((always_inline)) {
        if constexpr (later > r) {
          const Batch<T> factor(x.n.row(i + later)[i + r]);
          unroll<V>([&](auto v) { sum[later][v] = fma(factor, u[v], sum[later][v]); });
        }
      });
    });
  }
  if constexpr (R > 1) {
    if (i < rows) solve_rows<T, V, (R > 4 ? 4 : R / 2)>(i, rows, j, x);
  }
}

template <class T>
inline void solve(long rows, long columns, const ForwardSystem<T>& x) {
  each_tile<T>(columns, [&](long j, auto vectors) { solve_rows<T, vectors>(0, rows, j, x); });
}

// dU = A^T dO + Kd dS + N^T Y and Y = -b * dU, for rows [0, n), from the last.
template <class T>
struct BackwardSystem {
  Panel<T> a, dout, kd, ds, n;  // [rows, rows], [rows, value_width], [rows, width], [width, value_width], [rows, rows]
  Panel<T> du, y;
  const T* beta;  // [rows]
  long width;
};

// Rows [0, end), of `rows` in all.
template <class T, int V, int R = kSumRows<T>>
[[gnu::noinline]] void solve_rows_back(long end, long rows, long j, const BackwardSystem<T>& x) {
  constexpr int w = kWidth<T>;
  for (; end >= R; end -= R) {
    const long i = end - R;
    Batch<T> sum[R][V];
    unroll<R>([&](auto r) { unroll<V>([&](auto v) { sum[r][v] = Batch<T>(T(0)); }); });
    add_term(sum, upper_times(x.a, x.dout, rows), i, j);
    add_term(sum, times(x.kd, x.ds.right(), x.width), i, j);
    for (long p = rows - 1; p >= end; --p) {
      Batch<T> y[V];
      unroll<V>([&](auto v) { y[v] = load_aligned(x.y.row(p) + j + v * w); });
      unroll<R>([&](auto r) {
        const Batch<T> factor(x.n.row(p)[i + r]);
        unroll<V>([&](auto v) { sum[r][v] = fma(factor, y[v], sum[r][v]); });
      });
    }
    unroll<R>([&](auto from_last) __attribute__((always_inline)) {
      constexpr int r = R - 1 - from_last;
      const Batch<T> b(-x.beta[i + r]);
      Batch<T> y[V];
      unroll<V>([&](auto v) {
        store_aligned(x.du.row(i + r) + j + v * w, sum[r][v]);
        y[v] = b * sum[r][v];
        store_aligned(x.y.row(i + r) + j + v * w, y[v]);
      });
      unroll<R>([&](auto earlier) __attribute__((always_inline)) {
        if constexpr (earlier < r) {
          const Batch<T> factor(x.n.row(i + r)[i + earlier]);
          unroll<V>([&](auto v) { sum[earlier][v] = fma(factor, y[v], sum[earlier][v]); });
        }
      });
    });
  }
  if constexpr (R > 1) {
    if (end > 0) solve_rows_back<T, V, (R > 4 ? 4 : R / 2)>(end, rows, j, x);
  }
}

template <class T>
inline void solve_back(long rows, long columns, const BackwardSystem<T>& x) {
  each_tile<T>(columns, [&](long j, auto vectors) { solve_rows_back<T, vectors>(rows, rows, j, x); });
}

}  // namespace heed::kernels::HEED_LEVEL::gated

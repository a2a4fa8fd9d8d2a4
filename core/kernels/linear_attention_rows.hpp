// What the kernels of linear attention and of logarithms do alike with rows: which of them a step has, results to
// memory. Included only by linear_attention_forward.hpp and log_attention_forward.hpp.
#pragma once
#include "linear_attention_chunk.hpp"

namespace heed::kernels::HEED_LEVEL::linear {

// The keys that step s has: all of a step of keys, those beside the queries where causal.
template <class T, class S>
inline Range keys_of_step(const LinearProblem<T, S>& p, long s, long key_steps) {
  Range rows = rows_of_step(p, s);
  if (s < key_steps) return rows;
  if (!p.causal) return {0, 0};
  const Alignment at = alignment(p);
  rows.first += at.prefix - at.keyless;
  return rows;
}

// c [n, columns] = x y for x [n, depth]; and where `own`, + t z for z [n, columns] and a lower triangle t [n, n], or
// + t^T z, of which it is the upper one. finish(i, j, v) gets each vector of c: row i from column j on.
template <Nonzero kNonzero, class T, class Finish>
inline void product_and_triangle(long n, long columns, long depth, const Panel<T>& x, const Right<T>& y, bool own,
                                 const Panel<T>& t, const Panel<T>& z, Fetch* fetch, Finish finish) {
  constexpr Order order = kNonzero == Nonzero::lower ? Order::by_row : Order::by_column;
  const Term<T, Order::by_row> all{x.data, x.ld, y, depth};
  if (own)
    sum_products<T>(n, columns, fetch, finish, all, Term<T, order, kNonzero>{t.data, t.ld, z.right(), n});
  else
    sum_products<T>(n, columns, fetch, finish, all);
}

// The same for q s + tril(a) v, to the same bits, but without the zeros above the diagonal: values of later keys may be
// anything.
template <class T, class Finish>
inline void values_below_diagonal(long n, long columns, long depth, const Panel<T>& q, const Panel<T>& s,
                                  const Panel<T>& a, const Panel<T>& v, Finish finish) {
  for (long i = 0; i < n; ++i)
    for (long c = 0; c < columns; c += kWidth<T>) {
      Batch<T> sum(T(0));
      for (long p = 0; p < depth; ++p) sum = fma(Batch<T>(q.row(i)[p]), load_aligned(s.row(p) + c), sum);
      for (long j = 0; j <= i; ++j) sum = fma(Batch<T>(a.row(i)[j]), load_aligned(v.row(j) + c), sum);
      finish(i, c, sum);
    }
}

// Row i of x from column j on.
template <class T>
inline auto into_panel(const Panel<T>& x) {
  return [x](long i, long j, Batch<T> sum) { store_aligned(x.row(i) + j, sum); };
}

// To rows of a head from `first` on, each times its factor.
template <class T, class S>
inline auto scaled_rows_to(const HeadRows<S>& to, long b, long h, long first, long columns, const T* factor) {
  return [row = row_of(to, b, h, first), stride = to.row, columns, factor](long i, long j, Batch<T> x) {
    put_lanes(row + i * stride + j, x * Batch<T>(factor[i]), columns - j);
  };
}

// To rows of a head from `first` on: to = or += x, or nothing for those that are masked; null: none is.
template <class T>
inline auto rows_to(const HeadRows<T>& to, bool add, long b, long h, long first, long columns, const bool* masked) {
  return [row = row_of(to, b, h, first), stride = to.row, add, columns, masked](long i, long j, Batch<T> x) {
    if (masked != nullptr && masked[i]) x = Batch<T>(T(0));
    put_lanes(row + i * stride + j, x, columns - j, add);
  };
}

// The same for n rows of a panel.
template <class T>
inline void put_rows(const HeadRows<T>& to, bool add, long b, long h, long first, long n, long columns,
                     const Panel<T>& x, const bool* masked) {
  const auto put = rows_to(to, add, b, h, first, columns, masked);
  for (long i = 0; i < n; ++i)
    for (long c = 0; c < columns; c += kWidth<T>) put(i, c, load_aligned(x.row(i) + c));
}

}  // namespace heed::kernels::HEED_LEVEL::linear

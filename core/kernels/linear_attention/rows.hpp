// Rows in the kernels of linear attention and of its version by logarithms: the rows of a step, and stores of results.
// Included only by kernels of linear attention.
#pragma once
#include "chunk.hpp"

namespace heed::kernels::HEED_LEVEL::linear {

// The keys of step s: all rows of a step of keys; the own keys of a step of queries, if causal.
template <class T, class S>
inline Range keys_of_step(const LinearProblem<T, S>& p, long s, long key_steps) {
  Range rows = rows_of_step(p, s);
  if (s < key_steps) return rows;
  if (!p.causal) return {0, 0};
  const CausalSides at = alignment(p);
  rows.first += at.prefix - at.keyless;
  return rows;
}

// c [n, columns] = x y for x [n, depth]. If `own`, adds t z for z [n, columns] and a lower triangle t [n, n], or t^T z
// if kNonzero is upper. finish(i, j, v) receives each vector of c: row i from column j on.
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

// The same bits for q s + tril(a) v, but without the products by zeros above the diagonal. Values of later keys may be
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

// Stores to row i of x from column j on.
template <class T>
inline auto into_panel(const Panel<T>& x) {
  return [x](long i, long j, Batch<T> sum) { store_aligned(x.row(i) + j, sum); };
}

// Stores to rows of a head from `first` on, each multiplied by its factor.
template <class T, class S>
inline auto scaled_rows_to(const HeadRows<S>& to, long b, long h, long first, long columns, const T* factor) {
  return [row = row_of(to, b, h, first), stride = to.row, columns, factor](long i, long j, Batch<T> x) {
    put_lanes(row + i * stride + j, x * Batch<T>(factor[i]), columns - j);
  };
}

// Stores (or adds, if `add`) to rows of a head from `first` on. Masked rows count as 0. Null `masked`: no row is.
template <class T>
inline auto rows_to(const HeadRows<T>& to, bool add, long b, long h, long first, long columns, const bool* masked) {
  return [row = row_of(to, b, h, first), stride = to.row, add, columns, masked](long i, long j, Batch<T> x) {
    if (masked != nullptr && masked[i]) x = Batch<T>(T(0));
    put_lanes(row + i * stride + j, x, columns - j, add);
  };
}

// The same for the rows of a panel.
template <class T>
inline void put_rows(const HeadRows<T>& to, bool add, const HeadPart& at, long columns, const Panel<T>& x,
                     const bool* masked) {
  const auto put = rows_to(to, add, at.b, at.h, at.first, columns, masked);
  const long n = at.n;
  for (long i = 0; i < n; ++i)
    for (long c = 0; c < columns; c += kWidth<T>) put(i, c, load_aligned(x.row(i) + c));
}

// The keys of a chunk of queries, if causal.
template <class T, class S>
inline HeadPart own_keys(const LinearProblem<T, S>& p, const HeadPart& queries) {
  const CausalSides at = alignment(p);
  return {queries.b, queries.h / (p.heads / p.kv_heads), at.prefix + queries.first - at.keyless, queries.n};
}

// The outputs of queries without a key are 0. Stores `d` to norm, if it is not null.
template <class T, class S>
inline void clear_keyless(const LinearProblem<T, S>& p, const HeadRows<S>& out, T* norm, T d, long b, long h) {
  for (long i = 0; i < alignment(p).keyless; ++i) {
    memset(row_of(out, b, h, i), 0, static_cast<size_t>(p.value_width) * sizeof(S));
    if (norm != nullptr) norm[(b * p.heads + h) * p.queries + i] = d;
  }
}

// Their gradients are 0, too. `zeros` is scratch for a chunk of queries.
template <class T, class S>
inline void add_keyless(const LinearProblem<T, S>& p, const LinearGradients<T, S>& d, const Panel<T>& zeros, long b,
                        long h) {
  const long end = alignment(p).keyless;
  if (d.dq.data == nullptr || end == 0) return;
  fill(zeros, kChunk, T(0));
  for (long i = 0; i < end; i += kChunk) put_rows(d.dq, d.add_dq, {b, h, i, part(i, end)}, p.width, zeros, nullptr);
}

}  // namespace heed::kernels::HEED_LEVEL::linear

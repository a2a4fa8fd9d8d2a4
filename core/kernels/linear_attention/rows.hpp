// Rows in the kernels of linear attention and of its version by logarithms: the rows of a step, and stores of results.
// Included only by kernels of linear and gated attention.
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

// c [n, columns] = `product`, + `triangle` if `own`. finish(i, j, v) receives each vector of c: row i from column j on.
template <class T, Order kOrder, Nonzero kNonzero, class Finish>
inline void product_and_triangle(long n, long columns, const Term<T, Order::by_row>& product, bool own,
                                 const Term<T, kOrder, kNonzero>& triangle, Fetch* fetch, Finish finish) {
  if (own)
    sum_products<T>(n, columns, fetch, finish, product, triangle);
  else
    sum_products<T>(n, columns, fetch, finish, product);
}

// The same bits for a lower triangle, but without the products by zeros above the diagonal. Values of later keys may be
// anything.
template <class T, class Finish>
[[gnu::noinline]] void values_below_diagonal(long n, long columns, const Term<T, Order::by_row>& product,
                                             const Term<T, Order::by_row, Nonzero::lower>& triangle, Finish finish) {
  const Right<T>&y = product.y, &z = triangle.y;
  for (long i = 0; i < n; ++i)
    for (long c = 0; c < columns; c += kWidth<T>) {
      const T *x = product.x + i * product.stride, *t = triangle.x + i * triangle.stride;
      Batch<T> sum(T(0));
      for (long p = 0; p < product.depth; ++p) sum = fma(Batch<T>(x[p]), load_aligned(y.data + p * y.stride + c), sum);
      for (long j = 0; j <= i; ++j) sum = fma(Batch<T>(t[j]), load_aligned(z.data + j * z.stride + c), sum);
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

// The outputs of queries without a key are 0, and their d is eps. Stores d to norm, if it is not null.
template <class T, class S>
inline void clear_keyless(const LinearProblem<T, S>& p, const HeadRows<S>& out, T* norm, long b, long h) {
  for (long i = 0; i < alignment(p).keyless; ++i) {
    memset(row_of(out, b, h, i), 0, static_cast<size_t>(p.value_width) * sizeof(S));
    if (norm != nullptr) norm[(b * p.heads + h) * p.queries + i] = p.eps;
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

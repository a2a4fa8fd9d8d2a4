// What the kernels of linear attention and of logarithms do alike with rows: which of them a step has, results to
// memory. Included only by linear_attention_forward.hpp and log_attention_forward.hpp.
#pragma once
#include "linear_attention_chunk.hpp"

namespace heed::kernels::HEED_LEVEL::linear {

// The keys that step s has: all of a step of keys, those beside the queries where causal.
template <class T>
inline Range keys_of_step(const LinearProblem<T>& p, long s, long key_steps) {
  Range rows = rows_of_step(p, s);
  if (s < key_steps) return rows;
  if (!p.causal) return {0, 0};
  const Alignment at = alignment(p);
  rows.first += at.prefix - at.keyless;
  return rows;
}

// o += tril(a) v, in the order of lower_ab, to the same bits, but without the zeros above the diagonal: values of later
// keys may be anything.
template <class T>
inline void add_values_below_diagonal(const LinearProblem<T>& p, long n, const Panel<T>& a, const Panel<T>& v,
                                      const Panel<T>& o) {
  for (long i = 0; i < n; ++i)
    for (long c = 0; c < p.value_width; c += kWidth<T>) {
      Batch<T> sum(T(0));
      for (long j = 0; j <= i; ++j) sum = fma(Batch<T>(a.row(i)[j]), load_aligned(v.row(j) + c), sum);
      store_aligned(o.row(i) + c, sum + load_aligned(o.row(i) + c));
    }
}

// Rows [first, first + n) of a head: to = or += x, or nothing for those that are masked; null: none is.
template <class T>
inline void put_rows(const HeadRows<T>& to, bool add, long b, long h, long first, long n, long columns,
                     const Panel<T>& x, const bool* masked) {
  for (long i = 0; i < n; ++i) {
    T* row = row_of(to, b, h, first + i);
    for (long c = 0; c < columns; c += kWidth<T>) {
      Batch<T> y = masked != nullptr && masked[i] ? Batch<T>(T(0)) : load_aligned(x.row(i) + c);
      if (add) y = y + load_some(row + c, columns - c);
      put_lanes(row + c, y, lanes_of<T>(columns - c));
    }
  }
}

}  // namespace heed::kernels::HEED_LEVEL::linear

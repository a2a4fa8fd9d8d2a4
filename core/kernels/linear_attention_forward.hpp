// Forward of a step. Included only by linear_attention.kernel.cpp.
#pragma once
#include "linear_attention_rows.hpp"

namespace heed::kernels::HEED_LEVEL::linear {

template <class T>
inline void copy_state(const LinearProblem<T>& p, T* to, const T* from) {
  memcpy(to, from, static_cast<size_t>(state_size(p)) * sizeof(T));
}

// The state's sums go on over the keys [first, first + n).
template <class T>
inline void sum_key_rows(const LinearProblem<T>& p, long b, long h, Range rows, const Panel<T>& k, const Panel<T>& v,
                         const Sums<T>& sums) {
  const long end = rows.first + rows.count;
  for (long j = rows.first; j < end; j += kChunk) {
    load_keys(p, b, h, j, part(j, end), k, v);
    add_to<T>(sums, part(j, end), p.width, p.value_width, k, v, nullptr, nullptr);
  }
}

// The queries of the head and step that follow; none for a count of 0.
struct Next {
  long h;
  Range rows;
};
template <class T>
inline Next next_of(const LinearProblem<T>& p, LinearNext next, long key_steps) {
  if (next.step < key_steps) return {0, {0, 0}};
  return {next.h, rows_of_step(p, next.step)};
}

template <class T>
struct Forward {
  const LinearProblem<T>& p;
  Panel<T> q, k, v, a, o;  // [kChunk, width], twice; [kChunk, value_width]; [kChunk, kChunk]; [kChunk, value_width]

  Forward(const LinearProblem<T>& problem, Pieces<T>& from)
      : p(problem),
        q(take_panel(from, kChunk, p.width)),
        k(take_panel(from, kChunk, p.width)),
        v(take_panel(from, kChunk, p.value_width)),
        a(take_panel(from, kChunk, kChunk)),
        o(take_panel(from, kChunk, p.value_width)) {}

  // Queries [first, first + n), whose own keys begin at `key`.
  void chunk(const HeadRows<T>& out, T* norm, long b, long h, long first, long n, long key, const Sums<T>& sums,
             Fetch* fetch) {
    load_mapped(p.q, b, h, first, n, p.width, p.map, p.queries, q);
    block_ab<T>(Into::set, n, p.value_width, p.width, T(1), q.read(), sums.s.read(), o.block(), fetch);
    if (p.causal) {
      const bool finite = load_keys(p, b, h, key, n, k, v);
      lower_abt<T>(n, p.width, q, k, nullptr, a, fetch);
      if (finite)
        lower_ab(Into::add, n, p.value_width, a, v, o, fetch);
      else
        add_values_below_diagonal(p, n, a, v, o);
    }
    for (long i = 0; i < n; ++i) {
      Batch<T> sums_of_lanes(T(0));
      for (long c = 0; c < p.width; c += kWidth<T>)
        sums_of_lanes = fma(load_aligned(q.row(i) + c), load_aligned(sums.z + c), sums_of_lanes);
      for (long j = 0; p.causal && j <= i; j += kWidth<T>) sums_of_lanes = sums_of_lanes + load_aligned(a.row(i) + j);
      const T sum = reduce_add(sums_of_lanes), d = sum + p.eps;
      const Batch<T> inverse(sum == T(0) ? T(0) : T(1) / d);
      if (norm != nullptr) norm[(b * p.heads + h) * p.queries + first + i] = d;
      T* to = row_of(out, b, h, first + i);
      for (long c = 0; c < p.value_width; c += kWidth<T>)
        put_lanes(to + c, load_aligned(o.row(i) + c) * inverse, lanes_of<T>(p.value_width - c));
    }
    if (p.causal) add_to<T>(sums, n, p.width, p.value_width, k, v, nullptr, fetch);
  }

  // What is read of a chunk of queries.
  void prefetch_reads(Fetch& fetch, long b, long h, long first, long n) const {
    const Alignment at = alignment(p);
    const long kv = h / (p.heads / p.kv_heads), key = at.prefix + first - at.keyless;
    fetch_rows(fetch, p.q, b, h, first, n, p.width);
    if (!p.causal) return;
    fetch_rows(fetch, p.k, b, kv, key, n, p.width);
    fetch_rows(fetch, p.v, b, kv, key, n, p.value_width);
  }

  // A step of queries.
  void queries(const HeadRows<T>& out, T* norm, long b, long h, Range rows, Next next, const Sums<T>& sums) {
    const Alignment at = alignment(p);
    const long end = rows.first + rows.count;
    for (long i = rows.first; i < end; i += kChunk) {
      const long n = part(i, end);
      Fetch fetch;
      fetch_for_writing(fetch, out, b, h, i, n, p.value_width);
      if (i + n < end)
        prefetch_reads(fetch, b, h, i + n, part(i + n, end));
      else
        prefetch_reads(fetch, b, next.h, next.rows.first, part(0, next.rows.count));
      chunk(out, norm, b, h, i, n, at.prefix + i - at.keyless, sums, &fetch);
    }
  }

  void finish_keyless(const HeadRows<T>& out, T* norm, long b, long h) {
    for (long i = 0; i < alignment(p).keyless; ++i) {
      memset(row_of(out, b, h, i), 0, static_cast<size_t>(p.value_width) * sizeof(T));
      if (norm != nullptr) norm[(b * p.heads + h) * p.queries + i] = p.eps;
    }
  }
};

}  // namespace heed::kernels::HEED_LEVEL::linear

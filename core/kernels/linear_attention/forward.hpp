// Forward of a step of linear attention. Included only by kernels of linear attention.
#pragma once
#include "rows.hpp"

namespace heed::kernels::HEED_LEVEL::linear {

template <class T, class S>
inline void copy_state(const LinearProblem<T, S>& p, T* to, const T* from) {
  memcpy(to, from, static_cast<size_t>(state_size(p)) * sizeof(T));
}

// Adds the keys of `rows` to the sums of a state.
template <class T, class S>
inline void sum_key_rows(const LinearProblem<T, S>& p, long b, long h, Range rows, const Panel<T>& k, const Panel<T>& v,
                         const Sums<T>& sums) {
  const long end = rows.first + rows.count;
  for (long j = rows.first; j < end; j += kChunk) {
    load_keys(p, b, h, j, part(j, end), k, v);
    add_to<T>(p, sums, part(j, end), k, v, nullptr, nullptr);
  }
}

// The queries of the next step, for prefetching; count 0: none. `kept`: where the state before them is kept, or null.
template <class T>
struct Next {
  long h;
  Range rows;
  T* kept;
};
template <class T, class S, class K>
inline Next<K> next_of(const LinearProblem<T, S>& p, LinearNext next, long b, const LinearPlan& steps, K* kept) {
  if (next.step < steps.key_steps) return {0, {0, 0}, nullptr};
  return {next.h, rows_of_step(p, next.step), kept_state(p, kept, steps, b, next.h, next.step)};
}

template <class T, class S>
struct Forward {
  const LinearProblem<T, S>& p;
  Panel<T> q, k, v, a;  // [kChunk, width], twice; [kChunk, value_width]; [kChunk, kChunk]
  T* kt;                // k^T
  T* inverse;           // [kChunk]: 1 / d

  Forward(const LinearProblem<T, S>& problem, Pieces<T>& from)
      : p(problem),
        q(take_panel(from, kChunk, p.width)),
        k(take_panel(from, kChunk, p.width)),
        v(take_panel(from, kChunk, p.value_width)),
        a(take_panel(from, kChunk, kChunk)),
        kt(from.take(kChunk * p.width)),
        inverse(from.take(kChunk)) {}

  // Computes 1 / d for n queries, with d = rowsum(a) + q z + eps. Stores d to norm, if it is not null.
  void denominators(long n, const T* z, T* norm) {
    for (long i = 0; i < n; ++i) {
      Batch<T> lanes[kSumParts<T>];
      unroll<kSumParts<T>>([&](auto of) { lanes[of] = Batch<T>(T(0)); });
      sweep_lanes<T>(whole_vectors<T>(p.width), [&, x = q.row(i)](int64_t c, auto, auto of)
                     __attribute__((always_inline)) {
        lanes[of] = fma(load_aligned(x + c), load_aligned(z + c), lanes[of]);
      });
      if (p.causal) add_row(lanes, a.row(i), i);
      const T sum = total_of<T>(lanes), d = sum + p.eps;
      inverse[i] = sum == T(0) ? T(0) : T(1) / d;
      if (norm != nullptr) norm[i] = d;
    }
  }

  // A chunk of queries; their own keys start at `key`.
  void chunk(const HeadRows<S>& out, T* norm, const HeadPart& at, long key, const Sums<T>& sums, Fetch* fetch) {
    const long b = at.b, h = at.h, first = at.first, n = at.n;
    load_mapped(p.q, at, p.width, p.map, p.queries, q);
    const bool finite = !p.causal || load_keys(p, b, h, key, n, k, v);
    if (p.causal) lower_triangle<T>(n, p.width, q, transposed(k.data, k.ld, n, p.width, kt), nullptr, a, fetch);
    denominators(n, sums.z, norm == nullptr ? nullptr : norm + (b * p.heads + h) * p.queries + first);
    const auto put = scaled_rows_to(out, b, h, first, p.value_width, inverse);
    // out [n, value_width] = (q s, for the keys before the chunk, + a v, for its own) / d
    const auto before = times(q, sums.s.right(), p.width);
    const auto own = lower_times(a, v, n);
    if (finite)
      product_and_triangle(n, p.value_width, before, p.causal, own, fetch, put);
    else
      values_below_diagonal(n, p.value_width, before, own, put);
    if (p.causal) add_to<T>(p, sums, n, k, v, nullptr, fetch);
  }

  // Prefetches the inputs of a chunk of queries.
  void prefetch_reads(Fetch& fetch, const HeadPart& at) const {
    fetch_rows(fetch, p.q, at, p.width);
    if (!p.causal) return;
    const HeadPart keys = own_keys(p, at);
    fetch_rows(fetch, p.k, keys, p.width);
    fetch_rows(fetch, p.v, keys, p.value_width);
  }

  // Computes a step of queries.
  void queries(const HeadRows<S>& out, T* norm, long b, long h, Range rows, const Next<T>& next, const Sums<T>& sums) {
    const CausalSides at = alignment(p);
    const long end = rows.first + rows.count;
    for (long i = rows.first; i < end; i += kChunk) {
      const long n = part(i, end);
      Fetch fetch(kFetchedRows);
      fetch_for_writing(fetch, out, {b, h, i, n}, p.value_width);
      if (i + n < end)
        prefetch_reads(fetch, {b, h, i + n, part(i + n, end)});
      else
        prefetch_reads(fetch, {b, next.h, next.rows.first, part(0, next.rows.count)});
      if (i + n == end && p.causal) fetch.to_write(next.kept, state_row(p), p.width, state_row(p));
      chunk(out, norm, {b, h, i, n}, at.prefix + i - at.keyless, sums, &fetch);
    }
  }
};

}  // namespace heed::kernels::HEED_LEVEL::linear

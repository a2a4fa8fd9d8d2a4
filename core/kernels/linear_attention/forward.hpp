// Forward of a step of linear attention, and what backward shares with it. Included only by kernels of linear
// attention.
#pragma once
#include "log_chunk.hpp"

namespace heed::kernels::HEED_LEVEL::linear {

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

// Shared by forward and backward: the panels of a chunk, and the walk over keys.
template <class T, class S, LinearKind kKind>
struct Chunks {
  static constexpr bool kLogs = kKind != LinearKind::features;  // the features are given by their logarithms
  const LinearProblem<T, S>& p;
  Panel<T> q, k, v, a;  // [kChunk, width], twice; [kChunk, value_width]; [kChunk, kChunk]
  T* kt;                // k^T
  Panel<T> inverse;     // efficient: 1 / z_i [kChunk, width]
  T *m, *base;          // logarithms: [width]

  Chunks(const LinearProblem<T, S>& problem, Pieces<T>& from)
      : p(problem),
        q(take_panel(from, kChunk, p.width)),
        k(take_panel(from, kChunk, p.width)),
        v(take_panel(from, kChunk, p.value_width)),
        a(take_panel(from, kChunk, kChunk)),
        kt(from.take(kChunk * p.width)),
        inverse(take_panel(from, kKind == LinearKind::efficient ? kChunk : 0, p.width)),
        m(from.take(kLogs ? whole_vectors<T>(p.width) : 0)),
        base(from.take(kLogs ? whole_vectors<T>(p.width) : 0)) {}

  // Loads K and the values of at most n keys from `key` on. Returns the number of keys. With logarithms, the chunk may
  // end before n keys, and the state becomes relative to the maxima after the chunk. finite: all values are.
  long take_keys(long b, long h, long key, long n, const Sums<T>& state, bool& finite) {
    if constexpr (kLogs) {
      finite = load_log_keys(p, b, h, key, n, k, v);
      memcpy(m, state.m, static_cast<size_t>(whole_vectors<T>(p.width)) * sizeof(T));
      n = raise_maxima(p, n, k, m, base);
      rescale(p, Sum::of_keys, state, m);
      exp_keys(p, n, k, m);
    } else {
      finite = load_keys(p, b, h, key, n, k, v);
    }
    return n;
  }
  // Adds the keys of the chunk to the sums.
  void add_keys(long n, const Sums<T>& state, Fetch* fetch) { add_to<T>(p, state, n, k, v, nullptr, fetch); }

  // Adds the keys of `rows` to the sums.
  void sum_keys(long b, long h, Range rows, const Sums<T>& state) {
    const long end = rows.first + rows.count;
    bool finite;
    for (long j = rows.first, n; j < end; j += n) {
      n = take_keys(b, h, j, part(j, end), state, finite);
      add_keys(n, state, nullptr);
    }
  }

  // Loads Q of a chunk of queries, given the state before them. k holds their own keys, if causal.
  void load_queries(const HeadPart& at, const auto& state) {
    load_mapped(p, at, q);
    if constexpr (kKind == LinearKind::logs) exp_queries(p, at.n, q, state.m);
    if constexpr (kKind == LinearKind::efficient) normalise_queries(p, at.n, q, k, state.z, inverse);
  }

  // a = tril(q k^T) [n, n]
  void products_of_pairs(long n, Fetch* fetch) {
    lower_triangle<T>(n, p.width, q, transposed(k.data, k.ld, n, p.width, kt), nullptr, a, fetch);
  }

  // Prefetches the inputs of a chunk of queries.
  void prefetch_reads(Fetch& fetch, const HeadPart& at) const {
    fetch_rows(fetch, p.q, at, p.width);
    if (!p.causal) return;
    const HeadPart keys = own_keys(p, at);
    fetch_rows(fetch, p.k, keys, p.width);
    fetch_rows(fetch, p.v, keys, p.value_width);
  }
};

template <class T, class S, LinearKind kKind>
struct Forward : Chunks<T, S, kKind> {
  using Base = Chunks<T, S, kKind>;
  using Base::p, Base::q, Base::k, Base::v, Base::a;
  T* factor;  // [kChunk]: 1 / d

  Forward(const LinearProblem<T, S>& problem, Pieces<T>& from) : Base(problem, from), factor(from.take(kChunk)) {}

  // d - eps of query i: the sum of row i of a, + q z; efficient: 1
  T sum_of_weights(long i, const T* z) const {
    if constexpr (kKind == LinearKind::efficient) return T(1);
    Batch<T> lanes[kSumParts<T>];
    unroll<kSumParts<T>>([&](auto of) { lanes[of] = Batch<T>(T(0)); });
    if constexpr (kKind == LinearKind::features)
      sweep_lanes<T>(whole_vectors<T>(p.width), [&, x = q.row(i)](int64_t c, auto, auto of)
                     __attribute__((always_inline)) {
        lanes[of] = fma(load_aligned(x + c), load_aligned(z + c), lanes[of]);
      });
    if (p.causal) add_row(lanes, a.row(i), i);
    const T sum = total_of<T>(lanes);
    return kKind == LinearKind::features ? sum : sum + lane_dot(q.row(i), z, p.width);
  }

  // Computes 1 / d for n queries. Stores d to norm, if it is not null.
  void denominators(long n, const T* z, T* norm) {
    for (long i = 0; i < n; ++i) {
      const T sum = sum_of_weights(i, z), d = sum + p.eps;
      factor[i] = sum == T(0) ? T(0) : T(1) / d;
      if (norm != nullptr) norm[i] = d;
    }
  }

  // A chunk of queries. k and v hold their own keys, if causal. finite: all values of these are.
  void chunk(const HeadRows<S>& out, T* norm, const HeadPart& at, bool finite, const Sums<T>& sums, Fetch* fetch) {
    const long b = at.b, h = at.h, first = at.first, n = at.n;
    this->load_queries(at, sums);
    if (p.causal) this->products_of_pairs(n, fetch);
    denominators(n, sums.z, norm == nullptr ? nullptr : norm + (b * p.heads + h) * p.queries + first);
    const auto put = scaled_rows_to(out, b, h, first, p.value_width, factor);
    // out [n, value_width] = (q s, for the keys before the chunk, + a v, for its own) / d
    const auto before = times(q, sums.s.right(), p.width);
    const auto own = lower_times(a, v, n);
    if (finite)
      product_and_triangle(n, p.value_width, before, p.causal, own, fetch, put);
    else
      values_below_diagonal(n, p.value_width, before, own, put);
    if (p.causal) this->add_keys(n, sums, fetch);
  }

  // Computes a step of queries.
  void queries(const HeadRows<S>& out, T* norm, long b, long h, Range rows, const Next<T>& next, const Sums<T>& sums) {
    const CausalSides at = alignment(p);
    const long end = rows.first + rows.count;
    for (long i = rows.first, n; i < end; i += n) {
      n = part(i, end);
      bool finite = true;
      if (p.causal) n = this->take_keys(b, h, at.prefix + i - at.keyless, n, sums, finite);
      Fetch fetch(kFetchedRows);
      fetch_for_writing(fetch, out, {b, h, i, n}, p.value_width);
      if (i + n < end)
        this->prefetch_reads(fetch, {b, h, i + n, part(i + n, end)});
      else
        this->prefetch_reads(fetch, {b, next.h, next.rows.first, part(0, next.rows.count)});
      if (i + n == end && p.causal) fetch.to_write(next.kept, state_row(p), p.width, state_row(p));
      chunk(out, norm, {b, h, i, n}, finite, sums, &fetch);
    }
  }
};

}  // namespace heed::kernels::HEED_LEVEL::linear

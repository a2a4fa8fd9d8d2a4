// Forward of a step of attention by logarithms. Included only by log_attention.kernel.cpp.
#pragma once
#include "log_chunk.hpp"

namespace heed::kernels::HEED_LEVEL::logs {

// Shared by forward and backward: the panels of a chunk, and the pass over the keys.
template <class T, LinearKind kKind>
struct Chunks {
  const LinearProblem<T>& p;
  Panel<T> q, k, v, a, inverse;
  T *m, *base;  // [width]
  T* kt;        // k^T

  Chunks(const LinearProblem<T>& problem, Pieces<T>& from)
      : p(problem),
        q(take_panel(from, kChunk, p.width)),
        k(take_panel(from, kChunk, p.width)),
        v(take_panel(from, kChunk, p.value_width)),
        a(take_panel(from, kChunk, kChunk)),
        inverse(take_panel(from, kChunk, p.width)),
        m(from.take(whole_vectors<T>(p.width))),
        base(from.take(whole_vectors<T>(p.width))),
        kt(from.take(kChunk * p.width)) {}

  // Takes at most n keys from `key` on: k = exp(b - m'), and the state becomes relative to m'. Returns the number of
  // keys.
  long take_keys(long b, long h, long key, long n, const LogState<T>& state, bool& finite) {
    finite = load_log_keys(p, b, h, key, n, k, v);
    const size_t size = static_cast<size_t>(whole_vectors<T>(p.width)) * sizeof(T);
    memcpy(m, state.m, size);
    n = raise_maxima(p, n, k, m, base);
    rescale(p, Sum::of_keys, state, m);
    exp_keys(p, n, k, m);
    return n;
  }
  // Adds the keys of the chunk to the sums.
  void add_keys(long n, const LogState<T>& state) { add_to<T>(p, state.sums, n, k, v, nullptr, nullptr); }

  void sum_keys(long b, long h, Range rows, const LogState<T>& state) {
    const long end = rows.first + rows.count;
    bool finite;
    for (long j = rows.first; j < end;) {
      const long n = take_keys(b, h, j, part(j, end), state, finite);
      add_keys(n, state);
      j += n;
    }
  }

  // Loads Q of queries [first, first + n). k holds their own keys, if causal.
  void load_queries(long b, long h, long first, long n, const LogState<T>& state) {
    load_mapped(p.q, {b, h, first, n}, p.width, FeatureMap::identity, p.queries, q);
    if constexpr (kKind == LinearKind::logs)
      exp_queries(p, n, q, state.m);
    else
      normalise_queries(p, n, q, k, state.sums.z, inverse);
  }

  // a = tril(q k^T) [n, n]
  void products_of_pairs(long n) {
    lower_triangle<T>(n, p.width, q, transposed(k.data, k.ld, n, p.width, kt), nullptr, a, nullptr);
  }
};

template <class T, LinearKind kKind>
struct Forward : Chunks<T, kKind> {
  using Base = Chunks<T, kKind>;
  using Base::p, Base::q, Base::k, Base::v, Base::a;
  T* factor;  // [kChunk]: 1 / d, or 1

  Forward(const LinearProblem<T>& problem, Pieces<T>& from) : Base(problem, from), factor(from.take(kChunk)) {}

  // A chunk of queries.
  void chunk(const HeadRows<T>& out, T* norm, const HeadPart& at, bool finite, const LogState<T>& state) {
    const long b = at.b, h = at.h, first = at.first, n = at.n;
    this->load_queries(b, h, first, n, state);
    if (p.causal) this->products_of_pairs(n);
    for (long i = 0; i < n; ++i) {
      T d(1);
      if constexpr (kKind == LinearKind::logs) {
        Batch<T> lanes[kSumParts<T>];
        unroll<kSumParts<T>>([&](auto of) { lanes[of] = Batch<T>(T(0)); });
        if (p.causal) add_row(lanes, a.row(i), i);
        d = total_of<T>(lanes) + lane_dot(q.row(i), state.sums.z, p.width);
      }
      if (norm != nullptr) norm[(b * p.heads + h) * p.queries + first + i] = d;
      factor[i] = d == T(0) ? T(0) : T(1) / d;
    }
    const auto put = scaled_rows_to(out, b, h, first, p.value_width, factor);
    // out [n, value_width] = (q s, for the keys before the chunk, + a v, for its own) / d
    const auto before = times(q, state.sums.s.right(), p.width);
    const auto own = lower_times(a, v, n);
    if (finite)
      product_and_triangle(n, p.value_width, before, p.causal, own, nullptr, put);
    else
      values_below_diagonal(n, p.value_width, before, own, put);
  }

  void queries(const HeadRows<T>& out, T* norm, long b, long h, Range rows, const LogState<T>& state) {
    const CausalSides at = alignment(p);
    const long end = rows.first + rows.count;
    for (long i = rows.first; i < end;) {
      long n = part(i, end);
      bool finite = true;
      if (p.causal) n = this->take_keys(b, h, at.prefix + i - at.keyless, n, state, finite);
      chunk(out, norm, {b, h, i, n}, finite, state);
      if (p.causal) this->add_keys(n, state);
      i += n;
    }
  }
};

}  // namespace heed::kernels::HEED_LEVEL::logs

// Backward of a step of linear attention. Included only by linear_attention.kernel.cpp.
#pragma once
#include "forward.hpp"

namespace heed::kernels::HEED_LEVEL::linear {

// Names as in linear_attention.hpp.
template <class T, class S>
struct Backward {
  const LinearProblem<T, S>& p;
  const LinearGradients<T, S>& d;
  Panel<T> q, k, v, a, w, g;  // g: H
  Panel<T> dq, dk;
  T *kt, *vt, *st;  // k^T, v^T, and S^T or P^T
  T* u;             // [kChunk]
  T* before;        // the states before each chunk of a step

  Backward(const LinearProblem<T, S>& problem, const LinearGradients<T, S>& gradients, Pieces<T>& from)
      : p(problem),
        d(gradients),
        q(take_panel(from, kChunk, p.width)),
        k(take_panel(from, kChunk, p.width)),
        v(take_panel(from, kChunk, p.value_width)),
        a(take_panel(from, kChunk, kChunk)),
        w(take_panel(from, kChunk, kChunk)),
        g(take_panel(from, kChunk, p.value_width)),
        dq(take_panel(from, kChunk, p.width)),
        dk(take_panel(from, kChunk, p.width)),
        kt(from.take(kChunk * p.width)),
        vt(from.take(kChunk * p.value_width)),
        st(from.take(whole_panels<T>(p.width) * p.value_width)),
        u(from.take(kChunk)),
        before(from.take(step_rows(p) / kChunk * state_size(p))) {}

  Right<T> state_transposed(const auto& s) const { return transposed(s.data, s.ld, p.width, p.value_width, st); }

  // Loads H = G / d and u = -rowsum(H * O). Both are 0 for a row without a key.
  void load_output(long b, long h, long first, long n) {
    for (long i = 0; i < n; ++i) {
      fetch_row(d.dout, b, h, first + i + kAhead, p.queries, p.value_width);
      fetch_row(d.out, b, h, first + i + kAhead, p.queries, p.value_width);
      const T norm = d.norm[(b * p.heads + h) * p.queries + first + i];
      const Batch<T> inverse(norm == p.eps ? T(0) : T(1) / norm);
      const T* dout = row_of(d.dout, b, h, first + i);
      const S* out = row_of(d.out, b, h, first + i);
      T sum[1];
      sum_lanes(p.value_width, sum, [&, to = g.row(i)](int64_t c, auto at, Batch<T>(&s)[1])
                __attribute__((always_inline)) {
        const Batch<T> x = at.load(dout + c) * inverse;
        store_aligned(to + c, x);
        s[0] = fma(x, at.template load_as<T>(out + c), s[0]);
      });
      u[i] = -sum[0];
    }
  }

  // (x + u z^T) * factor * f'(.), where u is row_factor. f' is computed from `mapped`, which holds factor * f(.). Null
  // row_factor or factor: ones.
  struct Mapped {
    Panel<T> x;
    const T* row_factor = nullptr;
    const T* z = nullptr;
    Panel<T> mapped;
    const T* factor = nullptr;
  };

  // Stores these rows as put_rows() does.
  void put_mapped(const HeadRows<T>& to, bool add, const HeadPart& at, const Mapped& of, const bool* masked) const {
    const long b = at.b, h = at.h, first = at.first, n = at.n;
    const Panel<T> x = of.x, mapped = of.mapped;
    const T *row_factor = of.row_factor, *z = of.z, *factor = of.factor;
    with_map(p.map, [&](auto m) {
      constexpr FeatureMap kMap = m;
      for (long i = 0; i < n; ++i) {
        T* row = row_of(to, b, h, first + i);
        const Batch<T> of_row(row_factor == nullptr ? T(1) : row_factor[i]), f(factor == nullptr ? T(1) : factor[i]);
        const bool none = factor != nullptr && factor[i] == T(0), hidden = masked != nullptr && masked[i];
        for (long c = 0; c < p.width; c += kWidth<T>) {
          Batch<T> y = load_aligned(mapped.row(i) + c);
          if (factor != nullptr) y = none ? Batch<T>(T(0)) : y / f;
          y = fma(of_row, load_aligned(z + c), load_aligned(x.row(i) + c)) * slope_at<kMap>(y) * f;
          put_lanes(row + c, hidden ? Batch<T>(T(0)) : y, p.width - c, add);
        }
      }
    });
  }

  // dk and dv of the keys [first, first + n), which are loaded. `own`: they are the keys of the queries' chunk, so the
  // triangles are added.
  void keys(long b, long h, long first, long n, bool own, const Sums<T>& after, Fetch* fetch) {
    const long shared = p.heads / p.kv_heads, kv = h / shared;
    const bool later = h % shared != 0;
    bool each_masked[kChunk];
    const bool* masked = has_masked_keys(p) ? each_masked : nullptr;
    for (long j = 0; masked != nullptr && j < n; ++j) each_masked[j] = masked_key(p, b, first + j);
    if (d.dk.data != nullptr || d.dweight != nullptr) {
      // dk [n, width] = v [n, value_width] after.s^T, from the queries of later chunks,
      //                 + tril(w)^T [n, n] q [n, width], from those of the same chunk
      product_and_triangle(n, p.width, times(v, state_transposed(after.s), p.value_width), own, upper_times(w, q, n),
                           fetch, into_panel(dk));
      const long at = (b * p.heads + h) * p.keys + first;
      for (long j = 0; d.dweight != nullptr && j < n; ++j)  // k holds weight f(k)
        if (p.weight[at + j] != T(0) && (masked == nullptr || !masked[j]))
          d.dweight[at + j] += (lane_dot(dk.row(j), k.row(j), p.width) + lane_dot(after.z, k.row(j), p.width)) /
                               p.weight[at + j];
      if (d.dk.data != nullptr)
        put_mapped(d.dk, d.add_dk || later, {b, kv, first, n},
                   {.x = dk, .z = after.z, .mapped = k, .factor = p.weight == nullptr ? nullptr : p.weight + at},
                   masked);
    }
    if (d.dv.data != nullptr) {
      // dv [n, value_width] = k [n, width] after.s + tril(a)^T [n, n] g [n, value_width]
      product_and_triangle(n, p.value_width, times(k, after.s.right(), p.width), own, upper_times(a, g, n), fetch,
                           rows_to<T>(d.dv, d.add_dv || later, b, kv, first, p.value_width, masked));
    }
  }

  // A chunk of queries; their own keys start at `key`.
  void chunk(const HeadPart& at, long key, const Sums<const T>& state, const Sums<T>& after, Fetch* fetch) {
    const long b = at.b, h = at.h, n = at.n;
    load_mapped(p.q, at, p.width, p.map, p.queries, q);  // q = f(q) [n, width]
    load_output(b, h, at.first, n);                      // g = H [n, value_width], u [n]
    if (p.causal) {
      load_keys(p, b, h, key, n, k, v);  // k [n, width], v [n, value_width]
      // a = tril(q k^T) and w = tril(g v^T + u), both [n, n]
      lower_triangle<T>(n, p.width, q, transposed(k.data, k.ld, n, p.width, kt), nullptr, a, fetch);
      lower_triangle<T>(n, p.value_width, g, transposed(v.data, v.ld, n, p.value_width, vt), u, w, fetch);
    }
    if (d.dq.data != nullptr) {
      // dq [n, width] = g state.s^T, from the keys before the chunk, + w k, from its own
      product_and_triangle(n, p.width, times(g, state_transposed(state.s), p.value_width), p.causal,
                           lower_times(w, k, n), fetch, into_panel(dq));
      put_mapped(d.dq, d.add_dq, at, {.x = dq, .row_factor = u, .z = state.z, .mapped = q}, nullptr);
    }
    if (p.causal) keys(b, h, key, n, true, after, fetch);
    // after.s [width, value_width] += q^T g and after.z [width] += q^T u, for the keys before
    add_to<T>(p, after, n, q, g, u, fetch);
  }

  // Prefetches the inputs of a chunk of queries.
  void prefetch_reads(Fetch& fetch, const HeadPart& at) const {
    fetch_rows(fetch, p.q, at, p.width);
    fetch_rows(fetch, d.dout, at, p.value_width);
    fetch_rows(fetch, d.out, at, p.value_width);
    if (!p.causal) return;
    const HeadPart keys = own_keys(p, at);
    fetch_rows(fetch, p.k, keys, p.width);
    fetch_rows(fetch, p.v, keys, p.value_width);
  }
  // Prefetches the results of a chunk of queries.
  void prefetch_writes(Fetch& fetch, const HeadPart& at) const {
    fetch_for_writing(fetch, d.dq, at, p.width);
    if (!p.causal) return;
    const HeadPart keys = own_keys(p, at);
    fetch_for_writing(fetch, d.dk, keys, p.width);
    fetch_for_writing(fetch, d.dv, keys, p.value_width);
  }

  // Computes a step of queries. `kept` is the state before the step.
  void queries(long b, long h, Range rows, const Next<const T>& next, const T* kept, const Sums<T>& after) {
    const CausalSides at = alignment(p);
    const long end = rows.first + rows.count, to_key = at.prefix - at.keyless;
    if (p.causal && rows.count > kChunk) {
      copy_state(p, before, kept);
      for (long i = rows.first; i + kChunk < end; i += kChunk) {
        T* last = before + (i - rows.first) / kChunk * state_size(p);
        copy_state(p, last + state_size(p), last);
        sum_key_rows(p, b, h, {i + to_key, kChunk}, k, v, state_at(p, last + state_size(p)));
      }
      kept = before;
    }
    for (long c = (rows.count - 1) / kChunk; c >= 0; --c) {
      const long i = rows.first + c * kChunk;
      if (i >= end) continue;
      Fetch fetch(kFetchedRows);
      prefetch_writes(fetch, {b, h, i, part(i, end)});
      if (c > 0)
        prefetch_reads(fetch, {b, h, i - kChunk, kChunk});
      else if (const long last = (next.rows.count - 1) / kChunk * kChunk; next.rows.count > 0)
        prefetch_reads(fetch, {b, next.h, next.rows.first + last, next.rows.count - last});
      if (c == 0 && p.causal) fetch.to_read(next.kept, state_row(p), p.width, state_row(p));
      chunk({b, h, i, part(i, end)}, i + to_key, state_at(p, kept + (p.causal ? c * state_size(p) : 0)), after, &fetch);
    }
  }
};

}  // namespace heed::kernels::HEED_LEVEL::linear

// Backward of a step of linear attention. Included only by kernels of linear attention.
#pragma once
#include "forward.hpp"

namespace heed::kernels::HEED_LEVEL::linear {

// Names as in linear_attention.hpp and log_attention.hpp.
template <class T, class S, LinearKind kKind>
struct Backward : Chunks<T, S, kKind> {
  using Base = Chunks<T, S, kKind>;
  using Base::kLogs, Base::p, Base::q, Base::k, Base::v, Base::a, Base::inverse;
  static constexpr bool kReadsOut = kKind != LinearKind::efficient;
  const LinearGradients<T, S>& d;
  Panel<T> w, g;  // g: H
  Panel<T> dq, dk;
  T *vt, *st;    // v^T, and S^T or P^T
  T* u;          // [kChunk]
  T* before;     // the states before each chunk of a step; logarithms: before one chunk
  long* firsts;  // logarithms: of the chunks of a step

  Backward(const LinearProblem<T, S>& problem, const LinearGradients<T, S>& gradients, Pieces<T>& from)
      : Base(problem, from),
        d(gradients),
        w(take_panel(from, kChunk, kChunk)),
        g(take_panel(from, kChunk, p.value_width)),
        dq(take_panel(from, kChunk, p.width)),
        dk(take_panel(from, kChunk, p.width)),
        vt(from.take(kChunk * p.value_width)),
        st(from.take(whole_panels<T>(p.width) * p.value_width)),
        u(from.take(kChunk)),
        before(from.take((kLogs ? 1 : step_rows(p) / kChunk) * state_size<kKind>(p))),
        firsts(reinterpret_cast<long*>(from.take((kLogs ? step_rows(p) + 1 : 0) * static_cast<long>(sizeof(long)) /
                                                 static_cast<long>(sizeof(T))))) {}

  Right<T> state_transposed(const auto& s) const { return transposed(s.data, s.ld, p.width, p.value_width, st); }

  // Loads H = G / d and u = -rowsum(H * O); efficient: G alone. Both are 0 for a row without a key.
  void load_output(const HeadPart& rows) {
    const long b = rows.b, h = rows.h, first = rows.first, n = rows.n;
    for (long i = 0; i < n; ++i) {
      fetch_row(d.dout, b, h, first + i + kAhead, p.queries, p.value_width);
      if (kReadsOut) fetch_row(d.out, b, h, first + i + kAhead, p.queries, p.value_width);
      const T norm = d.norm[(b * p.heads + h) * p.queries + first + i];
      const Batch<T> factor(norm == p.eps ? T(0) : T(1) / norm);
      const T* dout = row_of(d.dout, b, h, first + i);
      const S* out = row_of(d.out, b, h, first + i);
      T sum[1];
      sum_lanes(
          p.value_width, sum, [&, to = g.row(i) ](int64_t c, auto at, Batch<T>(&s)[1]) __attribute__((always_inline)) {
            const Batch<T> x = at.load(dout + c) * factor;
            store_aligned(to + c, x);
            if constexpr (kReadsOut) s[0] = fma(x, at.template load_as<T>(out + c), s[0]);
          });
      u[i] = -sum[0];
    }
  }

  // ---- Gradients of keys ----

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
    with_map(p.map, [&](auto map) {
      constexpr FeatureMap kMap = map;
      for (long i = 0; i < n; ++i) {
        T* row = row_of(to, b, h, first + i);
        const Batch<T> of_row(row_factor == nullptr ? T(1) : row_factor[i]), f(factor == nullptr ? T(1) : factor[i]);
        const bool none = factor != nullptr && factor[i] == T(0), hidden = masked != nullptr && masked[i];
        for (long c = 0; c < p.width; c += kWidth<T>) {
          Batch<T> y = load_aligned(mapped.row(i) + c);
          if (factor != nullptr) y = none ? Batch<T>(T(0)) : y / f;
          y = fma(of_row, load_aligned(z + c), load_aligned(x.row(i) + c)) * slope_at<kMap>(y, p.alpha) * f;
          put_lanes(row + c, hidden ? Batch<T>(T(0)) : y, p.width - c, add);
        }
      }
    });
  }

  // r + e_i of row i; only for efficient.
  Batch<T> with_own(Batch<T> r, long i, long c) const {
    return r - load_aligned(dq.row(i) + c) * load_aligned(q.row(i) + c) * load_aligned(inverse.row(i) + c);
  }

  // Logarithms: dk = k * (dk + r), row by row from the last. For efficient and the queries' own keys, r += e_i in each
  // row.
  void finish_keys(long n, bool own, const Sums<T>& after) {
    for (long c = 0; c < p.width; c += kWidth<T>) {
      Batch<T> r = load_aligned(after.z + c);
      for (long j = n - 1; j >= 0; --j) {
        if (kKind == LinearKind::efficient && own) r = with_own(r, j, c);
        const Batch<T> x = load_aligned(dk.row(j) + c) + r, y = load_aligned(k.row(j) + c);
        store_aligned(dk.row(j) + c, select(y == Batch<T>(T(0)), y, y * x));
      }
    }
  }

  // dk and dv of a chunk of keys, which are loaded. `own`: they are the keys of the queries' chunk, so the triangles
  // are added.
  void keys(const HeadPart& at, bool own, const Sums<T>& after, Fetch* fetch) {
    const long shared = p.heads / p.kv_heads, n = at.n;
    const HeadPart to{at.b, at.h / shared, at.first, n};
    const bool later = at.h % shared != 0;
    bool each_masked[kChunk];
    const bool* masked = has_masked_keys(p) ? each_masked : nullptr;
    for (long j = 0; masked != nullptr && j < n; ++j) each_masked[j] = masked_key(p, at.b, at.first + j);
    if (d.dk.data != nullptr || d.dweight != nullptr) {
      // dk [n, width] = v [n, value_width] after.s^T, from the queries of later chunks,
      //                 + tril(w)^T [n, n] q [n, width], from those of the same chunk
      product_and_triangle(n, p.width, times(v, state_transposed(after.s), p.value_width), own, upper_times(w, q, n),
                           fetch, into_panel(dk));
      if constexpr (kLogs) finish_keys(n, own, after);
      const long first = (at.b * p.heads + at.h) * p.keys + at.first;  // in the weights
      for (long j = 0; d.dweight != nullptr && j < n; ++j)
        if (masked == nullptr || !masked[j]) add_dweight(j, first + j, after.z);
      if constexpr (kLogs) {
        if (d.dk.data != nullptr) put_rows(d.dk, d.add_dk || later, to, p.width, dk, masked);
      } else if (d.dk.data != nullptr) {
        const T* factor = p.weight == nullptr ? nullptr : p.weight + first;
        put_mapped(d.dk, d.add_dk || later, to, {.x = dk, .z = after.z, .mapped = k, .factor = factor}, masked);
      }
    }
    if (d.dv.data != nullptr) {
      // dv [n, value_width] = k [n, width] after.s + tril(a)^T [n, n] g [n, value_width]
      product_and_triangle(n, p.value_width, times(k, after.s.right(), p.width), own, upper_times(a, g, n), fetch,
                           rows_to<T>(d.dv, d.add_dv || later, to.b, to.h, to.first, p.value_width, masked));
    }
  }

  // Adds the gradient of the weight `at`, that of key j of the chunk. Features: k holds weight f(k).
  void add_dweight(long j, long at, const T* z) const {
    if constexpr (kLogs)
      d.dweight[at] += lane_sum<T>(p.width, [x = dk.row(j)](int64_t c, auto lanes) { return lanes.load(x + c); });
    else if (p.weight[at] != T(0))
      d.dweight[at] += (lane_dot(dk.row(j), k.row(j), p.width) + lane_dot(z, k.row(j), p.width)) / p.weight[at];
  }

  // ---- Gradients of queries ----

  // Loads a chunk of queries, given the state before them. With logarithms, `after` becomes relative to its maxima. k
  // and v hold their own keys, if causal.
  void load_chunk(const HeadPart& at, const Sums<const T>& state, const Sums<T>& after) {
    this->load_queries(at, state);
    load_output(at);
    if constexpr (kLogs) rescale(p, Sum::of_queries, after, state.m);
  }

  // w = tril(g v^T + u) [n, n], and dq [n, width] = g state.s^T, from the keys before the chunk, + w k, from its own.
  void query_products(long n, const Sums<const T>& state, Fetch* fetch) {
    if (p.causal) lower_triangle<T>(n, p.value_width, g, transposed(v.data, v.ld, n, p.value_width, vt), u, w, fetch);
    if (kKind == LinearKind::efficient || d.dq.data != nullptr)  // efficient: e_i depends on dq
      product_and_triangle(n, p.width, times(g, state_transposed(state.s), p.value_width), p.causal,
                           lower_times(w, k, n), fetch, into_panel(dq));
  }

  // after.s [width, value_width] += q^T g and after.z [width] += q^T u (efficient: the e_i), for the keys before.
  void add_queries(long n, const Sums<T>& after, Fetch* fetch) {
    if constexpr (kKind != LinearKind::efficient) return add_to<T>(p, after, n, q, g, u, fetch);
    add_product(after.s, n, p.width, p.value_width, q, g, fetch);
    for (long c = 0; c < p.width; c += kWidth<T>) {
      Batch<T> r = load_aligned(after.z + c);
      for (long i = n - 1; i >= 0; --i) r = with_own(r, i, c);
      store_aligned(after.z + c, r);
    }
  }

  // Stores the gradients of a chunk of queries, given the products in dq.
  void put_queries(const HeadPart& at, const T* z) const {
    if constexpr (!kLogs)
      return put_mapped(d.dq, d.add_dq, at, {.x = dq, .row_factor = u, .z = z, .mapped = q}, nullptr);
    const auto put = rows_to(d.dq, d.add_dq, at.b, at.h, at.first, p.width, nullptr);
    for (long i = 0; i < at.n; ++i)
      for (long c = 0; c < p.width; c += kWidth<T>) {
        const Batch<T> x = load_aligned(dq.row(i) + c);
        if constexpr (kKind == LinearKind::logs)
          put(i, c, fma(Batch<T>(u[i]), load_aligned(z + c), x) * load_aligned(q.row(i) + c));
        else
          put(i, c, x * load_aligned(inverse.row(i) + c));
      }
  }

  // A chunk of queries. k and v hold their own keys, if causal.
  void chunk(const HeadPart& at, const Sums<const T>& state, const Sums<T>& after, Fetch* fetch) {
    load_chunk(at, state, after);  // q [n, width], g [n, value_width], u [n]
    if (p.causal) this->products_of_pairs(at.n, fetch);
    query_products(at.n, state, fetch);
    if (p.causal) keys({at.b, at.h, own_keys(p, at).first, at.n}, true, after, fetch);
    add_queries(at.n, after, fetch);
    if (d.dq.data != nullptr) put_queries(at, state.z);
  }

  // ---- Steps ----

  // Prefetches the inputs and the results of a chunk of queries.
  void prefetch_reads(Fetch& fetch, const HeadPart& at) const {
    fetch_rows(fetch, d.dout, at, p.value_width);
    if (kReadsOut) fetch_rows(fetch, d.out, at, p.value_width);
    Base::prefetch_reads(fetch, at);
  }
  void prefetch_writes(Fetch& fetch, const HeadPart& at) const {
    fetch_for_writing(fetch, d.dq, at, p.width);
    if (!p.causal) return;
    const HeadPart keys = own_keys(p, at);
    fetch_for_writing(fetch, d.dk, keys, p.width);
    fetch_for_writing(fetch, d.dv, keys, p.value_width);
  }

  // Calls f(chunk, state before it) for the chunks of a step of queries, back to front, after loading their own keys,
  // if causal. `kept` is the state before the step. The states are computed front to back.
  template <class F>
  void each_chunk(long b, long h, Range rows, const T* kept, F&& f) {
    if constexpr (kLogs) return each_log_chunk(b, h, rows, kept, f);
    const long end = rows.first + rows.count, chunks = (rows.count + kChunk - 1) / kChunk;
    bool finite;
    if (p.causal && chunks > 1) {
      copy_state<kKind>(p, before, kept);
      for (long c = 0; c + 1 < chunks; ++c) {
        T *last = before + c * state_size<kKind>(p), *next = last + state_size<kKind>(p);
        copy_state<kKind>(p, next, last);
        this->sum_keys(b, h, {own_keys(p, {b, h, rows.first + c * kChunk, kChunk}).first, kChunk}, state_at(p, next));
      }
      kept = before;
    }
    for (long c = chunks - 1; c >= 0; --c) {
      const long i = rows.first + c * kChunk;
      const HeadPart at{b, h, i, part(i, end)};
      if (p.causal) this->take_keys(b, h, own_keys(p, at).first, at.n, {}, finite);
      f(at, state_at(p, kept + (p.causal ? c * state_size<kKind>(p) : 0)));
    }
  }

  // The number of chunks has no useful bound, so the state before a chunk is computed again from `kept`.
  template <class F>
  void each_log_chunk(long b, long h, Range rows, const T* kept, F&& f) {
    const CausalSides at = alignment(p);
    const long end = rows.first + rows.count, to_key = at.prefix - at.keyless;
    const Sums<T> state = state_at(p, before);
    long count = 0;
    copy_state<kKind>(p, before, kept);
    for (long i = rows.first; i < end;) {
      firsts[count++] = i;
      if (p.causal) {
        load_log_keys(p, b, h, i + to_key, part(i, end), k, v);
        i += raise_maxima(p, part(i, end), k, state.m, this->base);
      } else {
        i += part(i, end);
      }
    }
    firsts[count] = end;
    for (long c = count - 1; c >= 0; --c) {
      copy_state<kKind>(p, before, kept);
      bool finite;
      for (long i = 0; p.causal && i <= c; ++i) {
        this->take_keys(b, h, firsts[i] + to_key, firsts[i + 1] - firsts[i], state, finite);
        if (i < c) this->add_keys(firsts[i + 1] - firsts[i], state, nullptr);
      }
      f(HeadPart{b, h, firsts[c], firsts[c + 1] - firsts[c]}, state_at<T, S, const T>(p, before));
    }
  }

  // Computes a step of queries. `kept` is the state before the step.
  void queries(long b, long h, Range rows, const Next<const T>& next, const T* kept, const Sums<T>& after) {
    each_chunk(b, h, rows, kept, [&](const HeadPart& at, const Sums<const T>& state) {
      const long left = at.first - rows.first;
      Fetch fetch(kFetchedRows);
      prefetch_writes(fetch, at);
      if (left > 0)
        prefetch_reads(fetch, {b, h, at.first - part(0, left), part(0, left)});
      else if (const long last = (next.rows.count - 1) / kChunk * kChunk; next.rows.count > 0)
        prefetch_reads(fetch, {b, next.h, next.rows.first + last, next.rows.count - last});
      if (left == 0 && p.causal) fetch.to_read(next.kept, state_row(p), p.width, state_row(p));
      chunk(at, state, after, &fetch);
    });
  }

  // P and r (or y) of a step of queries only.
  void sum_queries(long b, long h, Range rows, const T* kept, const Sums<T>& after) {
    const auto add = [&](const HeadPart& at, const Sums<const T>& state) {
      load_chunk(at, state, after);
      if constexpr (kKind == LinearKind::efficient) query_products(at.n, state, nullptr);
      add_queries(at.n, after, nullptr);
    };
    if constexpr (kLogs) return each_chunk(b, h, rows, kept, add);
    const long end = rows.first + rows.count;
    for (long i = rows.first; i < end; i += kChunk) add({b, h, i, part(i, end)}, {});  // needs no state
  }

  // Computes a step of keys. With logarithms, P and r are relative to the maxima of the first queries.
  void key_rows(long b, long h, Range rows, const Sums<T>& after) {
    const long end = rows.first + rows.count;
    for (long j = rows.first; j < end; j += kChunk) {
      const HeadPart at{b, h, j, part(j, end)};
      if constexpr (kLogs) {
        load_log_keys(p, b, h, j, at.n, k, v);
        exp_keys(p, at.n, k, after.m);
      } else {
        load_keys(p, b, h, j, at.n, k, v);
      }
      keys(at, false, after, nullptr);
    }
  }
};

}  // namespace heed::kernels::HEED_LEVEL::linear

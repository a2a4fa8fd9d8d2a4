// Backward of a step of attention by logarithms. Included only by log_attention.kernel.cpp.
#pragma once
#include "log_forward.hpp"

namespace heed::kernels::HEED_LEVEL::logs {

// Names as in log_attention.hpp.
template <class T, LinearKind kKind>
struct Backward : Chunks<T, kKind> {
  using Base = Chunks<T, kKind>;
  using Base::p, Base::q, Base::k, Base::v, Base::a, Base::inverse;
  const LinearGradients<T>& d;
  Panel<T> w, g, dq, dk;
  T *vt, *st;    // v^T, and S^T or P^T
  T* u;          // [kChunk]
  T* before;     // a state
  long* firsts;  // of the chunks of a step

  Backward(const LinearProblem<T>& problem, const LinearGradients<T>& gradients, Pieces<T>& from)
      : Base(problem, from),
        d(gradients),
        w(take_panel(from, kChunk, kChunk)),
        g(take_panel(from, kChunk, problem.value_width)),
        dq(take_panel(from, kChunk, problem.width)),
        dk(take_panel(from, kChunk, problem.width)),
        vt(from.take(kChunk * problem.value_width)),
        st(from.take(whole_panels<T>(problem.width) * problem.value_width)),
        u(from.take(kChunk)),
        before(from.take(log_state_size(problem))),
        firsts(reinterpret_cast<long*>(
            from.take((step_rows(problem) + 1) * static_cast<long>(sizeof(long)) / static_cast<long>(sizeof(T))))) {}

  Right<T> state_transposed(const LogState<T>& x) const {
    return transposed(x.sums.s.data, x.sums.s.ld, p.width, p.value_width, st);
  }

  // Loads H = G / d and u = -rowsum(H * O); efficient: G alone.
  void load_output(long b, long h, long first, long n) {
    for (long i = 0; i < n; ++i) {
      const T norm = d.norm[(b * p.heads + h) * p.queries + first + i];
      const Batch<T> factor(norm == T(0) ? T(0) : T(1) / norm);
      const T *dout = row_of(d.dout, b, h, first + i), *out = row_of(d.out, b, h, first + i);
      T sum[1] = {T(0)};
      sum_lanes(p.value_width, sum, [&, to = g.row(i)](int64_t c, auto at, Batch<T>(&s)[1])
                __attribute__((always_inline)) {
        const Batch<T> x = at.load(dout + c) * factor;
        store_aligned(to + c, x);
        if constexpr (kKind == LinearKind::logs) s[0] = fma(x, at.load(out + c), s[0]);
      });
      u[i] = -sum[0];
    }
  }

  // r + e_i of row i; only for efficient.
  Batch<T> with_own(Batch<T> r, long i, long c) const {
    return r - load_aligned(dq.row(i) + c) * load_aligned(q.row(i) + c) * load_aligned(inverse.row(i) + c);
  }

  // dk = k * (dk + r), row by row from the last. For efficient and the queries' own keys, r += e_i in each row.
  void finish_keys(long n, bool own, const LogState<T>& after) {
    for (long c = 0; c < p.width; c += kWidth<T>) {
      Batch<T> r = load_aligned(after.sums.z + c);
      for (long j = n - 1; j >= 0; --j) {
        if (kKind == LinearKind::efficient && own) r = with_own(r, j, c);
        const Batch<T> x = load_aligned(dk.row(j) + c) + r, y = load_aligned(k.row(j) + c);
        store_aligned(dk.row(j) + c, select(y == Batch<T>(T(0)), y, y * x));
      }
    }
  }

  // dk and dv of the keys [first, first + n), which are loaded.
  void keys(long b, long h, long first, long n, bool own, const LogState<T>& after) {
    const long shared = p.heads / p.kv_heads, kv = h / shared;
    const bool later = h % shared != 0;
    bool each_masked[kChunk];
    const bool* masked = has_masked_keys(p) ? each_masked : nullptr;
    for (long j = 0; masked != nullptr && j < n; ++j) each_masked[j] = masked_key(p, b, first + j);
    // dk [n, width] = v [n, value_width] P^T, from the queries of later chunks, + tril(w)^T [n, n] q, from those of the
    // same chunk
    product_and_triangle(n, p.width, times(v, state_transposed(after), p.value_width), own, upper_times(w, q, n),
                         nullptr, into_panel(dk));
    finish_keys(n, own, after);
    for (long j = 0; d.dweight != nullptr && j < n; ++j) {
      T* to = d.dweight + (b * p.heads + h) * p.keys + first + j;
      if (masked != nullptr && masked[j]) continue;
      *to += lane_sum<T>(p.width, [x = dk.row(j)](int64_t c, auto at) { return at.load(x + c); });
    }
    if (d.dk.data != nullptr) put_rows(d.dk, d.add_dk || later, {b, kv, first, n}, p.width, dk, masked);
    if (d.dv.data != nullptr) {
      // dv [n, value_width] = k [n, width] P + tril(a)^T [n, n] g [n, value_width]
      product_and_triangle(n, p.value_width, times(k, after.sums.s.right(), p.width), own, upper_times(a, g, n),
                           nullptr, rows_to(d.dv, d.add_dv || later, b, kv, first, p.value_width, masked));
    }
  }

  // Loads queries [first, first + n), given the state before them, and makes `after` relative to its maxima. k and v
  // hold their own keys, if causal.
  void load_chunk(long b, long h, long first, long n, const LogState<T>& state, const LogState<T>& after) {
    this->load_queries(b, h, first, n, state);
    load_output(b, h, first, n);
    rescale(p, Sum::of_queries, after, state.m);
  }

  // W = tril(g v^T + u) [n, n], and dQ [n, width] = g S^T, from the keys before the chunk, + W k, from its own.
  void query_gradients(long n, const LogState<T>& state) {
    if (p.causal) lower_triangle<T>(n, p.value_width, g, transposed(v.data, v.ld, n, p.value_width, vt), u, w, nullptr);
    product_and_triangle(n, p.width, times(g, state_transposed(state), p.value_width), p.causal, lower_times(w, k, n),
                         nullptr, into_panel(dq));
    if constexpr (kKind == LinearKind::logs)
      for (long i = 0; i < n; ++i)
        for (long c = 0; c < p.width; c += kWidth<T>)
          store_aligned(dq.row(i) + c,
                        fma(Batch<T>(u[i]), load_aligned(state.sums.z + c), load_aligned(dq.row(i) + c)));
  }

  // P [width, value_width] += q^T g and r (or y) [width] likewise, for the keys before.
  void add_queries(long n, const LogState<T>& after) {
    add_product(after.sums.s, n, p.width, p.value_width, q, g, nullptr);
    if constexpr (kKind == LinearKind::logs) return add_rows(after.sums.z, n, p.width, q, u);
    for (long c = 0; c < p.width; c += kWidth<T>) {
      Batch<T> r = load_aligned(after.sums.z + c);
      for (long i = n - 1; i >= 0; --i) r = with_own(r, i, c);
      store_aligned(after.sums.z + c, r);
    }
  }

  void chunk(long b, long h, long first, long n, long key, const LogState<T>& state, const LogState<T>& after) {
    load_chunk(b, h, first, n, state, after);  // q [n, width], g [n, value_width], u [n]
    if (p.causal) this->products_of_pairs(n);  // a
    query_gradients(n, state);
    if (p.causal) keys(b, h, key, n, true, after);
    add_queries(n, after);
    if (d.dq.data == nullptr) return;
    for (long i = 0; i < n; ++i)
      for (long c = 0; c < p.width; c += kWidth<T>)
        store_aligned(dq.row(i) + c,
                      load_aligned(dq.row(i) + c) * load_aligned((kKind == LinearKind::logs ? q : inverse).row(i) + c));
    put_rows(d.dq, d.add_dq, {b, h, first, n}, p.width, dq, nullptr);
  }

  // Calls f(first, n, first of their own keys, state before them) for the chunks of a step of queries, back to front.
  // `kept` is the state before the step. The bounds of the chunks are found front to back.
  template <class F>
  void each_chunk(long b, long h, Range rows, const T* kept, F&& f) {
    const CausalSides at = alignment(p);
    const long end = rows.first + rows.count, to_key = at.prefix - at.keyless;
    const LogState<T> state = log_state_at(p, before);
    const size_t size = static_cast<size_t>(log_state_size(p)) * sizeof(T);
    long count = 0;
    memcpy(before, kept, size);
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
      memcpy(before, kept, size);
      bool finite;
      for (long i = 0; p.causal && i <= c; ++i) {
        this->take_keys(b, h, firsts[i] + to_key, firsts[i + 1] - firsts[i], state, finite);
        if (i < c) this->add_keys(firsts[i + 1] - firsts[i], state);
      }
      f(firsts[c], firsts[c + 1] - firsts[c], firsts[c] + to_key, state);
    }
  }

  void queries(long b, long h, Range rows, const T* kept, const LogState<T>& after) {
    each_chunk(b, h, rows, kept, [&](long first, long n, long key, const LogState<T>& state) {
      chunk(b, h, first, n, key, state, after);
    });
  }

  // P and r (or y) only.
  void sum_queries(long b, long h, Range rows, const T* kept, const LogState<T>& after) {
    each_chunk(b, h, rows, kept, [&](long first, long n, long, const LogState<T>& state) {
      load_chunk(b, h, first, n, state, after);
      if constexpr (kKind == LinearKind::efficient) query_gradients(n, state);
      add_queries(n, after);
    });
  }
};

}  // namespace heed::kernels::HEED_LEVEL::logs

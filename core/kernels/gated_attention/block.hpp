// A block of rows of gated attention: its inputs in cache, and running sums of the logarithms of gates. Names as in
// gated_attention.hpp. Included only by kernels of gated attention.
#pragma once
#include "gated_attention.hpp"
#include "solve.hpp"

namespace heed::kernels::HEED_LEVEL::gated {

using linear::fetch_row;
using linear::load_row;

// Logarithms of gates below this one count as this one, which is a gate of 0. A sum over a block stays exact enough.
template <class T>
inline constexpr T kResetLog = T(-1000);

// Sizes of a problem that all parts of a kernel use.
template <class T>
inline bool has_delta(const GatedProblem<T>& p) {
  return p.beta.data != nullptr;
}
template <class T>
inline bool has_gates(const GatedProblem<T>& p) {
  return p.gate.data != nullptr || p.documents != nullptr;
}
template <class T>
inline long rows_of_head(const GatedProblem<T>& p, long b) {
  return p.lengths == nullptr ? p.length : p.lengths[b];
}
template <class T>
inline long state_row(const GatedProblem<T>& p) {
  return whole_vectors<T>(p.value_width);
}
// Whole cache lines, so that tasks share none.
template <class T>
inline long state_size(const GatedProblem<T>& p) {
  return (p.width * state_row(p) + 15) / 16 * 16;
}
template <class T>
inline long kept_states(const GatedProblem<T>& p) {
  const long rows = p.block * p.kept_blocks;
  return (p.length + rows - 1) / rows;
}

// The parts of a block that forward and backward use. Rows beyond n hold anything. Columns beyond the width hold zeros,
// or NaN where an input is infinite, so sums over columns end at the width.
template <class T>
struct Block {
  const GatedProblem<T>& p;
  const bool delta, gates, channels;
  const long ahead;                     // from a row to the one that is prefetched with it
  long b = 0, h = 0, first = 0, n = 0;  // rows [first, first + n) of a head
  Panel<T> q, k;                        // [c, width]: Q and K
  Panel<T> u;                           // [c, value_width]: U
  Panel<T> qg, kg, kd;                  // [c, width]; without gates, q and k themselves
  Panel<T> a, nn;                       // [c, c]: A and N
  T* beta;                              // [c]
  T* f;                                 // F: [width] with a gate per channel, otherwise one number
  // One gate per row: D [c, c]; running sums of log a in two parts, p and r, all [c].
  Panel<T> decays;
  T *high, *low, *rise, *fall;
  // A gate per channel: a, p and r, [c, width].
  Panel<T> gate, rises, falls;
  T *kt, *running;  // k^T; [width]
  bool* resets;     // [c]: rows before which the state is reset by `documents`

  // to_front: the next block is the one before.
  Block(const GatedProblem<T>& problem, bool to_front, Pieces<T>& from)
      : p(problem),
        delta(has_delta(p)),
        gates(has_gates(p)),
        channels(p.per_channel),
        ahead(to_front ? -p.block : p.block),
        q(take_panel(from, p.block, p.width)),
        k(take_panel(from, p.block, p.width)),
        u(take_panel(from, p.block, p.value_width)),
        qg(gates ? take_panel(from, p.block, p.width) : q),
        kg(gates && delta ? take_panel(from, p.block, p.width) : k),
        kd(gates ? take_panel(from, p.block, p.width) : k),
        a(take_panel(from, p.block, p.block)),
        nn(take_panel(from, delta ? p.block : 0, p.block)),
        beta(from.take(p.block)),
        f(from.take(whole_vectors<T>(p.width))),
        decays(take_panel(from, gates && !channels ? p.block : 0, p.block)),
        high(from.take(p.block)),
        low(from.take(p.block)),
        rise(from.take(p.block)),
        fall(from.take(p.block)),
        gate(take_panel(from, channels ? p.block : 0, p.width)),
        rises(take_panel(from, channels ? p.block : 0, p.width)),
        falls(take_panel(from, channels ? p.block : 0, p.width)),
        kt(from.take(linear::whole_panels<T>(p.block) * p.width)),
        running(from.take(whole_vectors<T>(p.width))),
        resets(from.template take_as<bool>(p.block)) {
    if (!gates && from.base != nullptr) f[0] = T(1);
  }

  long key_head() const { return h / (p.heads / p.key_heads); }

  // Selects rows of a head and loads K, b and the gates.
  void begin(long batch, long head, long from, long rows) {
    b = batch, h = head, first = from, n = rows;
    load(p.k, key_head(), p.width, T(1), k);
    for (long i = 0; i < n; ++i) {
      if (delta) beta[i] = row_of(p.beta, b, h, first + i)[0];
      resets[i] = p.documents != nullptr && p.documents[b * p.length + first + i] == first + i;
    }
    if (gates && !channels) load_gates();
    if (channels) load_channel_gates();
  }
  void load_queries() { load(p.q, key_head(), p.width, p.scale, q); }

  // Loads rows times a factor, and prefetches those of the next block.
  void load(const HeadRows<const T>& x, long head, long columns, T factor, const Panel<T>& to) const {
    const Batch<T> by(factor);
    for (long i = 0; i < n; ++i) {
      fetch_row(x, b, head, first + i + ahead, p.length, columns);
      load_row(row_of(x, b, head, first + i), columns, to.row(i), [by](Batch<T> y) { return y * by; });
    }
  }

  // to = x with row i multiplied by factor[i].
  void scale_rows(const Panel<T>& x, const T* factor, const Panel<T>& to) const {
    for (long i = 0; i < n; ++i)
      for (long c = 0; c < x.ld; c += kWidth<T>)
        store_aligned(to.row(i) + c, load_aligned(x.row(i) + c) * Batch<T>(factor[i]));
  }
  void multiply(const Panel<T>& x, const Panel<T>& y, const Panel<T>& to) const {
    for (long i = 0; i < n; ++i)
      for (long c = 0; c < x.ld; c += kWidth<T>)
        store_aligned(to.row(i) + c, load_aligned(x.row(i) + c) * load_aligned(y.row(i) + c));
  }

  // ---- One gate per row ----

  // Sums of logarithms, their exponentials p and r, F, and Kd.
  void load_gates() {
    T sum = 0, rest = 0;
    for (long i = 0; i < n; ++i) {
      T x = p.gate.data == nullptr ? T(0) : row_of(p.gate, b, h, first + i)[0];
      if (resets[i] || x < kResetLog<T>) x = kResetLog<T>;
      const T next = sum + x, part = next - sum;  // the error of this sum is exact in T
      rest += (sum - (next - part)) + (x - part);
      sum = next;
      high[i] = sum, low[i] = rest;
    }
    for (long i = n; i < p.block; ++i) high[i] = sum, low[i] = rest;
    for (long i = 0; i < p.block; i += kWidth<T>) {
      const Batch<T> x = load_aligned(high + i), y = load_aligned(low + i);
      store_aligned(rise + i, exp(x + y));
      store_aligned(fall + i, exp((Batch<T>(sum) - x) + (Batch<T>(rest) - y)));
    }
    f[0] = rise[n - 1];
    scale_rows(k, fall, kd);
  }

  // D, as far as products with lower triangles read it.
  void load_decays() {
    for (long i = 0; i < n; ++i)
      for (long j = 0; j <= i; j += kWidth<T>) {
        const Batch<T> x = (Batch<T>(high[i]) - load_aligned(high + j)) + (Batch<T>(low[i]) - load_aligned(low + j));
        store_aligned(decays.row(i) + j, exp(select(first_lanes<T>(lanes_of<T>(i + 1 - j)), x, Batch<T>(T(0)))));
      }
  }

  // c = x y^T * D on and below the diagonal, or only below it, and 0 elsewhere; yt = y^T.
  void lower(const Panel<T>& x, const Right<T>& yt, long depth, bool strict, bool with_decays,
             const Panel<T>& c) const {
    const Panel<T> by = with_decays && gates ? decays : Panel<T>{nullptr, 0};
    const auto finish = [c, by, strict](long i, long j, Batch<T> sum) {
      const long below = i + (strict ? 0 : 1) - j;
      if (by.data != nullptr && below > 0) sum = sum * load_aligned(by.row(i) + j);
      if (below < kWidth<T>) sum = select(first_lanes<T>(below < 0 ? 0 : static_cast<int>(below)), sum, Batch<T>(T(0)));
      store_aligned(c.row(i) + j, sum);
    };
    for (long j = 0; j < n; j += kWidth<T>)
      for (long i = 0; i < j / kSumRows<T> * kSumRows<T>; ++i) store_aligned(c.row(i) + j, Batch<T>(T(0)));
    lower_product<T>(n, nullptr, finish, Term<T, Order::by_row>{x.data, x.ld, yt, depth});
  }

  // ---- A gate per channel ----

  // a, p, r, F and Kd.
  void load_channel_gates() {
    const HeadRows<const T>& x = p.gate;
    const Batch<T> lowest(kResetLog<T>);
    for (long c = 0; c < gate.ld; c += kWidth<T>) store_aligned(f + c, Batch<T>(T(0)));
    for (long i = 0; i < n; ++i) {
      fetch_row(x, b, h, first + i + ahead, p.length, p.width);
      load_row(row_of(x, b, h, first + i), p.width, gate.row(i), [](Batch<T> y) { return y; });
      for (long c = 0; c < gate.ld; c += kWidth<T>) {
        const Batch<T> log = resets[i] ? lowest : quick_max(lowest, load_aligned(gate.row(i) + c));
        const Batch<T> y = exp(log), sum = load_aligned(f + c) + log;
        store_aligned(gate.row(i) + c, y);
        store_aligned(f + c, i + 1 < n ? sum : exp(sum));
        store_aligned(rises.row(i) + c, i == 0 ? y : y * load_aligned(rises.row(i - 1) + c));
      }
    }
    for (long i = n - 1; i >= 0; --i)
      for (long c = 0; c < gate.ld; c += kWidth<T>)
        store_aligned(falls.row(i) + c, i + 1 == n
                                            ? Batch<T>(T(1))
                                            : load_aligned(falls.row(i + 1) + c) * load_aligned(gate.row(i + 1) + c));
    multiply(k, falls, kd);
  }

  // A and N, pair by pair: for each j, `running` is k_j f_ij for i = j, j + 1, ...
  void channel_pairs() {
    for (long i = 0; i < n; ++i) {
      clear(a.row(i), n);
      if (delta) clear(nn.row(i), n);
    }
    for (long j = 0; j < n; ++j) {
      memcpy(running, k.row(j), static_cast<size_t>(k.ld) * sizeof(T));
      a.row(j)[j] = lane_dot(q.row(j), running, p.width);
      if (delta)
        column_of_pairs<true>(j, j + 1);
      else
        column_of_pairs<false>(j, j + 1);
    }
  }
  // Column j from row i on. Several rows share each read of `running`; the order of a sum does not depend on them.
  template <bool kDelta, int kRows = rows_of_sums<T>(4)>
  void column_of_pairs(long j, long i) {
    constexpr int each = kDelta ? 2 : 1;  // sums per row
    for (; i + kRows <= n; i += kRows) {
      T sums[kRows * each];
      const T *x = q.row(i), *y = k.row(i), *by = gate.row(i);
      const long row = q.ld;
      T* const z = running;
      sum_lanes(
          row, sums, [=](int64_t c, auto, Batch<T>(&sum)[kRows * each]) __attribute__((always_inline)) {
            Batch<T> at = load_aligned(z + c);
            unroll<kRows>([&](auto r) __attribute__((always_inline)) {
              at = at * load_aligned(by + r * row + c);
              sum[r * each] = fma(load_aligned(x + r * row + c), at, sum[r * each]);
              if constexpr (kDelta) sum[r * each + 1] = fma(load_aligned(y + r * row + c), at, sum[r * each + 1]);
            });
            store_aligned(z + c, at);
          });
      for (int r = 0; r < kRows; ++r) {
        a.row(i + r)[j] = sums[r * each];
        if constexpr (kDelta) nn.row(i + r)[j] = sums[r * each + 1];
      }
    }
    if constexpr (kRows > 1) {
      if (i < n) column_of_pairs<kDelta, kRows / 2>(j, i);
    }
  }

  // ---- Both ----

  // Qg, Kg, A and N.
  void pairs() {
    if (channels) {
      multiply(q, rises, qg);
      if (delta) multiply(k, rises, kg);
      return channel_pairs();
    }
    if (gates) {
      load_decays();
      scale_rows(q, rise, qg);
      if (delta) scale_rows(k, rise, kg);
    }
    const Right<T> right = transposed(k.data, k.ld, n, p.width, kt);
    lower(q, right, p.width, false, true, a);
    if (delta) lower(k, right, p.width, true, true, nn);
  }

  // F * s + the sum, for a state s.
  StateTo<T> decayed(const Panel<T>& s) const { return {s, f, channels ? 1 : 0}; }

  // S <- F * S + Kd^T U
  void add_values(const Panel<T>& s) const {
    state_product<T>(p.width, p.value_width, {kd.data, kd.ld, u.right(), n}, {}, decayed(s));
  }

  // U = b * W for the W that forward kept, or U = V.
  void load_values(const T* residual, const Panel<T>& w) {
    if (!delta) return load(p.v, h, p.value_width, T(1), u);
    const HeadRows<const T> kept{residual, p.heads * p.length * p.value_width, p.length * p.value_width, p.value_width};
    load(kept, h, p.value_width, T(1), w);
    scale_rows(w, beta, u);
  }
};

// Copies between a state in scratch and rows [width, value_width] of a tensor.
template <class T>
inline void take_state(const GatedProblem<T>& p, const HeadRows<const T>& from, long b, long h, const Panel<T>& s) {
  for (long r = 0; r < p.width; ++r) {
    if (from.data != nullptr)
      load_row(row_of(from, b, h, r), p.value_width, s.row(r), [](Batch<T> x) { return x; });
    else
      clear(s.row(r), s.ld);
  }
}
template <class T>
inline void put_state(const GatedProblem<T>& p, const Panel<T>& s, const HeadRows<T>& to, long b, long h) {
  for (long r = 0; to.data != nullptr && r < p.width; ++r)
    put_row(row_of(to, b, h, r), s.row(r), p.value_width, T(1), false);
}
// Zeroes rows [first, end) of a head.
template <class T>
inline void clear_rows(const HeadRows<T>& x, long b, long h, long first, long end, long columns) {
  for (long i = first; x.data != nullptr && i < end; ++i)
    memset(row_of(x, b, h, i), 0, static_cast<size_t>(columns) * sizeof(T));
}

}  // namespace heed::kernels::HEED_LEVEL::gated

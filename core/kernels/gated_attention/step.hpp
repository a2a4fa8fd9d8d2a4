// Decoding with gated attention: a few positions of a head, by the recurrence, in the memory of the state. Each part of
// the state is read from memory once per position. Included only by kernels of gated attention.
#pragma once
#include "block.hpp"

namespace heed::kernels::HEED_LEVEL::gated {

template <class T>
struct Step {
  const GatedProblem<T>& p;
  T *q, *k, *a, *decayed;  // [width]: scale q, k, a, and a k

  Step(const GatedProblem<T>& problem, Pieces<T>& from)
      : p(problem),
        q(from.take(whole_vectors<T>(p.width))),
        k(from.take(whole_vectors<T>(p.width))),
        a(from.take(whole_vectors<T>(p.width))),
        decayed(from.take(whole_vectors<T>(p.width))) {}

  void load(long b, long h, long t) {
    const long key_head = h / (p.heads / p.key_heads);
    const Batch<T> scale(p.scale), lowest(kResetLog<T>);
    load_row(row_of(p.q, b, key_head, t), p.width, q, [=](Batch<T> x) { return x * scale; });
    load_row(row_of(p.k, b, key_head, t), p.width, k, [](Batch<T> x) { return x; });
    const bool reset = p.documents != nullptr && p.documents[b * p.length + t] == t;
    for (long c = 0; c < p.width; c += kWidth<T>) {
      Batch<T> log(T(0));
      if (p.gate.data != nullptr) {
        const T* gate = row_of(p.gate, b, h, t);
        log = quick_max(lowest, p.per_channel ? get_lanes(gate + c, p.width - c) : Batch<T>(gate[0]));
      }
      const Batch<T> x = exp(reset ? lowest : log);
      store_aligned(a + c, x);
      store_aligned(decayed + c, x * load_aligned(k + c));
    }
  }

  // V vectors of columns from c on of position t, of which `columns` exist.
  template <int V>
  void part(const HeadRows<T>& out, const HeadRows<T>& state, long b, long h, long t, long c) const {
    constexpr int w = kWidth<T>;
    T* const first = row_of(state, b, h, 0) + c;
    const T* value = row_of(p.v, b, h, t) + c;
    const long row = state.row, left = p.value_width - c;
    Batch<T> u[V], o[V];
    unroll<V>([&](auto v) { o[v] = u[v] = Batch<T>(T(0)); });
    for (long r = 0; has_delta(p) && r < p.width; ++r)
      unroll<V>(
          [&](auto v) { u[v] = fma(Batch<T>(decayed[r]), get_lanes(first + r * row + v * w, left - v * w), u[v]); });
    const Batch<T> beta(has_delta(p) ? row_of(p.beta, b, h, t)[0] : T(1));
    unroll<V>([&](auto v) { u[v] = beta * (get_lanes(value + v * w, left - v * w) - u[v]); });
    for (long r = 0; r < p.width; ++r)
      unroll<V>([&](auto v) {
        T* const s = first + r * row + v * w;
        const Batch<T> x = fma(Batch<T>(k[r]), u[v], Batch<T>(a[r]) * get_lanes(s, left - v * w));
        o[v] = fma(Batch<T>(q[r]), x, o[v]);
        put_lanes(s, x, left - v * w);
      });
    unroll<V>([&](auto v) { put_lanes(row_of(out, b, h, t) + c + v * w, o[v], left - v * w); });
  }

  void head(const HeadRows<T>& out, const HeadRows<T>& state, long b, long h) {
    const long end = rows_of_head(p, b);
    for (long t = 0; t < end; ++t) {
      load(b, h, t);
      long c = 0;
      for (; p.value_width - c >= 4 * kWidth<T>; c += 4 * kWidth<T>) part<4>(out, state, b, h, t, c);
      for (; c < p.value_width; c += kWidth<T>) part<1>(out, state, b, h, t, c);
    }
    clear_rows(out, b, h, end, p.length, p.value_width);
  }
};

}  // namespace heed::kernels::HEED_LEVEL::gated

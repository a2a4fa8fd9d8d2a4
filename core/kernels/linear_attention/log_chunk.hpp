// A chunk of keys and queries whose features are given by their logarithms. Formulas and names are in
// log_attention.hpp. Included only by kernels of linear attention.
#pragma once
#include "rows.hpp"

namespace heed::kernels::HEED_LEVEL::linear {

inline constexpr double kMaxRise = 60;  // max rise of a maximum within a chunk

// exp(x - m), or 0 where x or m is -inf.
template <class T>
inline Batch<T> exp_below(Batch<T> x, Batch<T> m) {
  return select((x == minus_infinity<T>()) | (m == minus_infinity<T>()), Batch<T>(T(0)), exp(x - m));
}

enum class Sum { of_keys, of_queries };

// Makes the sums relative to the maxima m, which are higher for S and z, and lower for P and r.
template <class T>
inline void rescale(const LinearProblem<T>& p, Sum sum, const Sums<T>& state, const T* m) {
  alignas(64) T factor[16];
  for (long c = 0; c < p.width; c += kWidth<T>) {
    const Batch<T> before = load_aligned(state.m + c), now = load_aligned(m + c);
    const Batch<T> f = sum == Sum::of_keys ? exp_below(before, now) : exp_below(now, before);
    store_aligned(state.m + c, now);
    if (all(f == Batch<T>(T(1)))) continue;
    store_aligned(state.z + c, load_aligned(state.z + c) * f);
    store_aligned(factor, f);
    for (long r = c; r < p.width && r < c + kWidth<T>; ++r)
      for (long j = 0; j < state_row(p); j += kWidth<T>)
        store_aligned(state.s.row(r) + j, load_aligned(state.s.row(r) + j) * Batch<T>(factor[r - c]));
  }
}

// Adds the sums of `more` to `state`. Sums of keys may have any maxima. For sums of queries, `more` is of later
// queries, with maxima that are not lower. A feature that is empty in `state` takes the sums and the maximum of `more`.
template <class T>
inline void add_state(const LinearProblem<T>& p, Sum sum, const Sums<T>& state, const Sums<T>& more) {
  alignas(64) T own[16], others[16];
  for (long c = 0; c < p.width; c += kWidth<T>) {
    const Batch<T> here = load_aligned(state.m + c), there = load_aligned(more.m + c);
    const auto none = here == minus_infinity<T>();
    const Batch<T> m = sum == Sum::of_keys ? max(here, there) : select(none, there, here);
    const Batch<T> f = sum == Sum::of_keys ? exp_below(here, m) : Batch<T>(T(1));
    const Batch<T> g = sum == Sum::of_keys ? exp_below(there, m) : select(none, Batch<T>(T(1)), exp_below(m, there));
    store_aligned(state.m + c, m);
    store_aligned(state.z + c, load_aligned(state.z + c) * f + load_aligned(more.z + c) * g);
    store_aligned(own, f), store_aligned(others, g);
    for (long r = c; r < p.width && r < c + kWidth<T>; ++r)
      for (long j = 0; j < state_row(p); j += kWidth<T>)
        store_aligned(state.s.row(r) + j, load_aligned(state.s.row(r) + j) * Batch<T>(own[r - c]) +
                                              load_aligned(more.s.row(r) + j) * Batch<T>(others[r - c]));
  }
}

// Loads the logarithms of keys [first, first + n), and their values: -inf and 0 for keys that are masked or have the
// logarithmic weight -inf. Returns whether all values are finite.
template <class T>
inline bool load_log_keys(const LinearProblem<T>& p, long b, long h, long first, long n, const Panel<T>& k,
                          const Panel<T>& v) {
  LinearProblem<T> unweighted = p;
  unweighted.weight = nullptr;
  const bool finite = load_keys(unweighted, b, h, first, n, k, v);
  const bool has_masked = has_masked_keys(p);
  const T* weight = p.weight == nullptr ? nullptr : p.weight + (b * p.heads + h) * p.keys + first;
  for (long j = 0; j < n; ++j) {
    const bool none = weight != nullptr && weight[j] == -kInfinity<T>;
    if (none) fill(Panel<T>{v.row(j), v.ld}, 1, T(0));
    if (none || (has_masked && masked_key(p, b, first + j))) {
      for (long c = 0; c < p.width; c += kWidth<T>) store_aligned(k.row(j) + c, minus_infinity<T>());
    } else if (weight != nullptr) {
      const Batch<T> log_weight(weight[j]);
      // Lanes beyond the width keep x: their number differs between levels, and a chunk ends where any lane rises.
      for (long c = 0; c < p.width; c += kWidth<T>) {
        const Batch<T> x = load_aligned(k.row(j) + c);
        store_aligned(k.row(j) + c, select(first_lanes<T>(lanes_of<T>(p.width - c)), x + log_weight, x));
      }
    }
  }
  return finite;
}

// Returns how many of the n keys make a chunk, and raises m to their logarithms. NaN ends no chunk. `base` is scratch.
template <class T>
inline long raise_maxima(const LinearProblem<T>& p, long n, const Panel<T>& k, T* m, T* base) {
  const Batch<T> max_rise(static_cast<T>(kMaxRise));
  for (long c = 0; c < p.width; c += kWidth<T>) store_aligned(base + c, load_aligned(m + c));
  for (long j = 0; j < n; ++j) {
    bool rises = false;
    for (long c = 0; c < p.width; c += kWidth<T>) {
      const Batch<T> x = load_aligned(k.row(j) + c), low = load_aligned(base + c);
      rises = rises || any(x - select(low == minus_infinity<T>(), x, low) > max_rise);
    }
    if (rises && j > 0) return j;
    for (long c = 0; c < p.width; c += kWidth<T>) {
      const Batch<T> x = load_aligned(k.row(j) + c), high = max(x, load_aligned(m + c)), low = load_aligned(base + c);
      store_aligned(m + c, high);
      // The smallest maximum for any query of this chunk: that after the first key, or after the first key of a
      // feature.
      store_aligned(base + c, j == 0 ? high : select(low == minus_infinity<T>(), x, low));
    }
  }
  return n;
}

// k = exp(k - m)
template <class T>
inline void exp_keys(const LinearProblem<T>& p, long n, const Panel<T>& k, const T* m) {
  for (long j = 0; j < n; ++j)
    for (long c = 0; c < p.width; c += kWidth<T>) {
      Batch<T> y = exp_below(load_aligned(k.row(j) + c), load_aligned(m + c));
      if (p.width - c < kWidth<T>) y = select(first_lanes<T>(static_cast<int>(p.width - c)), y, Batch<T>(T(0)));
      store_aligned(k.row(j) + c, y);
    }
}

// q = exp(a + m - max_r(a + m)), row by row. The common part of m is subtracted first, since it would cost digits of a.
template <class T>
inline void exp_queries(const LinearProblem<T>& p, long n, const Panel<T>& q, const T* m) {
  Batch<T> highest = minus_infinity<T>();
  for (long c = 0; c < p.width; c += kWidth<T>)
    highest = max(highest, load_part(m + c, lanes_of<T>(p.width - c), -kInfinity<T>));
  const T common = reduce_max(highest);
  const Batch<T> size(common - common == T(0) ? common : T(0));  // finite
  for (long i = 0; i < n; ++i) {
    Batch<T> high = minus_infinity<T>();
    for (long c = 0; c < p.width; c += kWidth<T>) {
      Batch<T> x = load_aligned(q.row(i) + c) + (load_aligned(m + c) - size);
      if (p.width - c < kWidth<T>) x = select(first_lanes<T>(static_cast<int>(p.width - c)), x, minus_infinity<T>());
      store_aligned(q.row(i) + c, x);
      high = max(high, x);
    }
    const Batch<T> row_max(reduce_max(high));
    for (long c = 0; c < p.width; c += kWidth<T>)
      store_aligned(q.row(i) + c, exp_below(load_aligned(q.row(i) + c), row_max));
  }
}

// q = p / z_i with z_i = z + the keys up to row i, if causal. inverse: 1 / z_i, or 0 where z_i is 0.
template <class T>
inline void normalise_queries(const LinearProblem<T>& p, long n, const Panel<T>& q, const Panel<T>& k, const T* z,
                              const Panel<T>& inverse) {
  const Batch<T> zero(T(0)), one(T(1));
  for (long c = 0; c < p.width; c += kWidth<T>) {
    Batch<T> sum = load_aligned(z + c);
    for (long i = 0; i < n; ++i) {
      if (p.causal) sum = sum + load_aligned(k.row(i) + c);
      const Batch<T> x = select(sum == zero, zero, one / sum);
      store_aligned(inverse.row(i) + c, x);
      store_aligned(q.row(i) + c, load_aligned(q.row(i) + c) * x);
    }
  }
}

}  // namespace heed::kernels::HEED_LEVEL::linear

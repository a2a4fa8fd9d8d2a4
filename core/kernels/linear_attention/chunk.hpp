// Chunks of linear attention: mapped rows in cache, and products with triangles. Included only by kernels of linear
// and gated attention.
#pragma once
#include "../attention/masks.hpp"
#include "../attention/rows.hpp"
#include "linear_attention.hpp"
#include "products.hpp"

namespace heed::kernels::HEED_LEVEL::linear {

inline constexpr long kChunk = 64;
inline constexpr long kAhead = 8;        // rows prefetched ahead of use
inline constexpr long kFetchedRows = 8;  // rows per tile; a chunk has enough tiles for all rows of the next

// alpha: of elu.
template <FeatureMap kMap, class T>
inline Batch<T> feature(Batch<T> x, T alpha) {
  const Batch<T> zero(T(0));
  switch (kMap) {
    case FeatureMap::elu:
      return fma(Batch<T>(alpha), exp(quick_min(zero, x)), quick_max(zero, x) + Batch<T>(T(1) - alpha));
    case FeatureMap::relu: return quick_max(zero, x);
    case FeatureMap::softplus: return log1p(exp(-abs(x))) + quick_max(zero, x);
    default: return x;
  }
}

// f'(x) for y = f(x). For elu below 0, y = alpha e^x + 1 - alpha.
template <FeatureMap kMap, class T>
inline Batch<T> slope_at(Batch<T> y, T alpha) {
  const Batch<T> zero(T(0)), one(T(1));
  switch (kMap) {
    case FeatureMap::elu: return select(y > one, one, y - Batch<T>(T(1) - alpha));
    case FeatureMap::relu: return select(y > zero, one, zero);
    case FeatureMap::softplus: return -expm1(-y);
    default: return one;
  }
}

// Calls f with the map as a constant, so that loops over rows do not test the map.
template <class F>
inline void with_map(FeatureMap map, F&& f) {
  switch (map) {
    case FeatureMap::elu: return f(std::integral_constant<FeatureMap, FeatureMap::elu>{});
    case FeatureMap::relu: return f(std::integral_constant<FeatureMap, FeatureMap::relu>{});
    case FeatureMap::softplus: return f(std::integral_constant<FeatureMap, FeatureMap::softplus>{});
    default: return f(std::integral_constant<FeatureMap, FeatureMap::identity>{});
  }
}

// A matrix in scratch. Rows are padded to whole vectors.
template <class T>
struct Panel {
  T* data;
  long ld;
  T* row(long i) const { return data + i * ld; }
  Right<T> right() const { return by_row<T>(data, ld); }
};

// Terms of a sum: x y for x [rows, depth], and t z or t^T z for a lower triangle t [n, n] and z [n, columns].
template <class T>
inline Term<T, Order::by_row> times(const Panel<T>& x, const Right<T>& y, long depth) {
  return {x.data, x.ld, y, depth};
}
template <class T>
inline Term<T, Order::by_row, Nonzero::lower> lower_times(const Panel<T>& t, const Panel<T>& z, long n) {
  return {t.data, t.ld, z.right(), n};
}
template <class T>
inline Term<T, Order::by_column, Nonzero::upper> upper_times(const Panel<T>& t, const Panel<T>& z, long n) {
  return {t.data, t.ld, z.right(), n};
}

template <class T>
inline Panel<T> take_panel(Pieces<T>& from, long rows, long columns) {
  const long ld = whole_vectors<T>(columns);
  return {from.take(rows * ld), ld};
}

template <class T>
inline void fill(const Panel<T>& x, long rows, T value) {
  for (long i = 0; i < rows * x.ld; i += kWidth<T>) store_aligned(x.data + i, Batch<T>(value));
}

// Prefetches row i of a head, if there is such a row, while other rows are processed. Rows of one head may be a page
// apart, which hardware prefetchers do not follow.
template <class T>
inline void fetch_row(const HeadRows<T>& x, long b, long h, long i, long rows, long columns) {
  if (i < 0 || i >= rows) return;
  const T* from = row_of(x, b, h, i);
  for (long c = 0; c < columns; c += 64 / static_cast<long>(sizeof(T))) __builtin_prefetch(from + c);
}

// to[0, columns) = f(from), padded with zeros to whole vectors.
template <class T, class S, class F>
inline void load_row(const S* from, long columns, T* to, F&& f) {
  constexpr long w = kWidth<T>;
  long c = 0;
  for (; c + w <= columns; c += w) store_aligned(to + c, f(load_as<T>(from + c)));
  if (c == columns) return;
  const int n = static_cast<int>(columns - c);
  store_aligned(to + c, select(first_lanes<T>(n), f(load_as_part<T>(from + c, n)), Batch<T>(T(0))));
}

// Loads queries, mapped.
template <class T, class S>
inline void load_mapped(const LinearProblem<T, S>& p, const HeadPart& at, const Panel<T>& to) {
  const long b = at.b, h = at.h, first = at.first, n = at.n;
  with_map(p.map, [&](auto m) {
    constexpr FeatureMap kMap = m;
    const auto mapped = [alpha = p.alpha](Batch<T> y) { return feature<kMap>(y, alpha); };
    for (long i = 0; i < n; ++i) {
      fetch_row(p.q, b, h, first + i + kAhead, p.queries, p.width);
      load_row(row_of(p.q, b, h, first + i), p.width, to.row(i), mapped);
    }
  });
}

// Loads keys [first, first + n), mapped and weighted, and their values. Keys that are masked or have weight 0 become
// zeros, as do their values, whatever they hold. Returns whether all values are finite.
template <class T, class S>
inline bool load_keys(const LinearProblem<T, S>& p, long b, long h, long first, long n, const Panel<T>& k,
                      const Panel<T>& v) {
  const long kv = h / (p.heads / p.kv_heads);
  const bool has_masked = has_masked_keys(p);
  const T* weight = p.weight == nullptr ? nullptr : p.weight + (b * p.heads + h) * p.keys + first;
  Batch<T> non_finite(T(0));  // NaN in a lane if a value is not finite
  with_map(p.map, [&](auto m) {
    constexpr FeatureMap kMap = m;
    const auto mapped = [alpha = p.alpha](Batch<T> y) { return feature<kMap>(y, alpha); };
    for (long j = 0; j < n; ++j) {
      fetch_row(p.k, b, kv, first + j + kAhead, p.keys, p.width);
      fetch_row(p.v, b, kv, first + j + kAhead, p.keys, p.value_width);
      const S *key = row_of(p.k, b, kv, first + j), *value = row_of(p.v, b, kv, first + j);
      if ((has_masked && masked_key(p, b, first + j)) || (weight != nullptr && weight[j] == T(0))) {
        clear(k.row(j), p.width), clear(v.row(j), p.value_width);
        continue;
      }
      if (weight == nullptr)
        load_row(key, p.width, k.row(j), mapped);
      else
        load_row(key, p.width, k.row(j), [&, w = Batch<T>(weight[j])](Batch<T> y) { return mapped(y) * w; });
      load_row(value, p.value_width, v.row(j), [&](Batch<T> y) {
        non_finite = non_finite | (y - y);
        return y;
      });
    }
  });
  return !any(isnan(non_finite));
}

// c = tril(x y^T + u 1^T) for x [n, depth] and yt = y^T [depth, n]. Null u: zeros. Right of the diagonal, c is 0 as far
// as products of the triangle read it.
template <class T>
inline void lower_triangle(long n, long depth, const Panel<T>& x, const Right<T>& yt, const T* u, const Panel<T>& c,
                           Fetch* fetch) {
  const auto finish = [c, u](long i, long j, Batch<T> sum) {
    if (u != nullptr) sum = sum + Batch<T>(u[i]);
    const long below = i + 1 - j;
    if (below < kWidth<T>) sum = select(first_lanes<T>(below < 0 ? 0 : static_cast<int>(below)), sum, Batch<T>(T(0)));
    store_aligned(c.row(i) + j, sum);
  };
  lower_product<T>(n, fetch, finish, Term<T, Order::by_row>{x.data, x.ld, yt, depth});
}

// Adds row i of a lower triangle. The row is padded with zeros to whole vectors.
template <class T>
inline void add_row(Batch<T> (&lanes)[kSumParts<T>], const T* row, long i) {
  sweep_lanes<T>(whole_vectors<T>(i + 1), [&](int64_t j, auto, auto k) __attribute__((always_inline)) {
    lanes[k] = lanes[k] + load_aligned(row + j);
  });
}

// z += x^T u for x [n, width]. Null u: ones.
template <class T>
inline void add_rows(T* z, long n, long width, const Panel<T>& x, const T* u) {
  constexpr long w = kWidth<T>;
  long c = 0;
  const auto columns = [&](auto vectors) {
    constexpr int v = vectors;
    for (; c + v * w <= whole_vectors<T>(width); c += v * w) {
      Batch<T> sum[v];
      unroll<v>([&](auto j) { sum[j] = load_aligned(z + c + j * w); });
      for (long i = 0; i < n; ++i) {
        const Batch<T> factor(u == nullptr ? T(1) : u[i]);
        unroll<v>([&](auto j) { sum[j] = fma(factor, load_aligned(x.row(i) + c + j * w), sum[j]); });
      }
      unroll<v>([&](auto j) { store_aligned(z + c + j * w, sum[j]); });
    }
  };
  columns(std::integral_constant<int, 4>{});
  columns(std::integral_constant<int, 1>{});
}

// A state: S [width, value_width] and z [width], or P and r. Sums of features that are given by their logarithms are
// relative to the maxima m [width], those of the keys so far; P and r: those of the keys of the chunk computed last.
template <class T>
struct Sums {
  Panel<T> s;
  T *z, *m;
};

template <class T, class S>
inline long state_row(const LinearProblem<T, S>& p) {
  return whole_vectors<T>(p.value_width);
}
// Whole cache lines, so that tasks share none.
template <LinearKind kKind, class T, class S>
inline long state_size(const LinearProblem<T, S>& p) {
  constexpr long vectors = kKind == LinearKind::features ? 1 : 2;  // z, and m
  return (p.width * state_row(p) + vectors * whole_vectors<T>(p.width) + 15) / 16 * 16;
}
template <class T, class S, class K>  // K: T or const T
inline Sums<K> state_at(const LinearProblem<T, S>& p, K* data) {
  K* const z = data + p.width * state_row(p);
  return {{data, state_row(p)}, z, z + whole_vectors<T>(p.width)};
}
template <LinearKind kKind, class T, class S>
inline void copy_state(const LinearProblem<T, S>& p, T* to, const T* from) {
  memcpy(to, from, static_cast<size_t>(state_size<kKind>(p)) * sizeof(T));
}

// s [width, value_width] += x^T y for x [n, width] and y [n, value_width].
template <class T>
inline void add_product(const Panel<T>& s, long n, long width, long value_width, const Panel<T>& x, const Panel<T>& y,
                        Fetch* fetch) {
  const auto add = [s](long i, long j, Batch<T> sum) { store_aligned(s.row(i) + j, load_aligned(s.row(i) + j) + sum); };
  sum_products<T>(width, value_width, fetch, add, Term<T, Order::by_column>{x.data, x.ld, y.right(), n});
}

// S += x^T y, z += x^T u for x [n, width] and y [n, value_width]. Null u: ones.
template <class T, class S>
inline void add_to(const LinearProblem<T, S>& p, const Sums<T>& sums, long n, const Panel<T>& x, const Panel<T>& y,
                   const T* u, Fetch* fetch) {
  add_product(sums.s, n, p.width, p.value_width, x, y, fetch);
  add_rows(sums.z, n, p.width, x, u);
}

// All queries from `keyless` on see the keys before `prefix`; without causal, all queries see all keys.
template <class T, class S>
inline CausalSides alignment(const LinearProblem<T, S>& p) {
  return p.causal ? causal_sides(p.queries, p.keys) : CausalSides{p.keys, 0};
}

// Rows per step. Steps have enough chunks that the states, one per step, are no larger than the queries and keys.
template <class T, class S>
inline long step_rows(const LinearProblem<T, S>& p) {
  return (p.width + kChunk - 1) / kChunk * kChunk;
}

struct Range {
  long first, count;
};
// The rows of step s: keys before the triangle, or queries.
template <class T, class S>
inline Range rows_of_step(const LinearProblem<T, S>& p, long s) {
  const CausalSides at = alignment(p);
  const long rows = step_rows(p), key_steps = (at.prefix + rows - 1) / rows;
  const long first = s < key_steps ? s * rows : at.keyless + (s - key_steps) * rows;
  const long end = s < key_steps ? at.prefix : p.queries;
  const long left = end - first;
  return {first, left < 0 ? 0 : left < rows ? left : rows};
}

// Where the state before a step of queries is kept; null if none is kept. Without the triangle, all steps share one
// state.
template <class T, class S, class K>
inline K* kept_state(const LinearProblem<T, S>& p, K* kept, const LinearPlan& steps, long b, long h, long step) {
  if (kept == nullptr) return nullptr;
  return kept + ((b * p.heads + h) * steps.kept + (p.causal ? step - steps.key_steps : 0)) * steps.state_size;
}

inline long part(long i, long end) { return end - i < kChunk ? end - i : kChunk; }

}  // namespace heed::kernels::HEED_LEVEL::linear

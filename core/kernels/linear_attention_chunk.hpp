// Chunks of linear attention: rows mapped and copied into the nearest cache, and products with triangles.
// Included only by linear_attention.kernel.cpp.
#pragma once
#include "attention_masks.hpp"
#include "gemm_micro.hpp"
#include "linear_attention.hpp"
#include "rows.hpp"

namespace heed::kernels::HEED_LEVEL::linear {

inline constexpr long kChunk = 64;
inline constexpr long kAhead = 8;  // rows: what the nearest cache waits for
inline constexpr long kHalf = 32;  // triangles are cut into halves, whose upper right is left out

template <class T>
inline Batch<T> feature(FeatureMap map, Batch<T> x) {
  const Batch<T> zero(T(0));
  switch (map) {
    case FeatureMap::elu: return exp(min(x, zero)) + max(x, zero);
    case FeatureMap::relu: return max(x, zero);
    case FeatureMap::softplus: return log1p(exp(-abs(x))) + max(x, zero);
    default: return x;
  }
}

// f'(x) for y = f(x)
template <class T>
inline Batch<T> slope_at(FeatureMap map, Batch<T> y) {
  const Batch<T> zero(T(0)), one(T(1));
  switch (map) {
    case FeatureMap::elu: return min(y, one);
    case FeatureMap::relu: return select(y > zero, one, zero);
    case FeatureMap::softplus: return -expm1(-y);
    default: return one;
  }
}

// The next n elements, at most a vector; lanes behind are 0.
template <class T>
inline Batch<T> load_some(const T* p, long n) {
  return n >= kWidth<T> ? load(p) : load_part(p, static_cast<int>(n));
}

// A matrix in the scratch: rows are whole vectors apart.
template <class T>
struct Panel {
  T* data;
  long ld;
  T* row(long i) const { return data + i * ld; }
  Block<T> block(long i = 0) const { return {row(i), ld}; }
  Block<const T> read(long i = 0, long j = 0) const { return {row(i) + j, ld}; }
};

template <class T>
inline Panel<T> take_panel(Pieces<T>& from, long rows, long columns) {
  const long ld = whole_vectors<T>(columns);
  return {from.take(rows * ld), ld};
}

template <class T>
inline void fill(const Panel<T>& x, long rows, T value) {
  for (long i = 0; i < rows * x.ld; i += kWidth<T>) store_aligned(x.data + i, Batch<T>(value));
}

// All rows [first, first + n) of a head, while products run.
template <class T>
inline void fetch_rows(Fetch& fetch, const HeadRows<T>& x, long b, long h, long first, long n, long columns) {
  if (x.data != nullptr && n > 0) fetch.to_read(row_of(x, b, h, first), x.row, n, columns);
}
template <class T>
inline void fetch_for_writing(Fetch& fetch, const HeadRows<T>& x, long b, long h, long first, long n, long columns) {
  if (x.data != nullptr && n > 0) fetch.to_write(row_of(x, b, h, first), x.row, n, columns);
}

// Row i of a head comes to the cache while other rows are worked on: rows of one head may lie a page apart each, which
// the machine does not foresee. There may be no such row.
template <class T>
inline void fetch_row(const HeadRows<T>& x, long b, long h, long i, long rows, long columns) {
  if (i < 0 || i >= rows) return;
  const T* from = row_of(x, b, h, i);
  for (long c = 0; c < columns; c += 64 / static_cast<long>(sizeof(T))) __builtin_prefetch(from + c);
}

// Rows [first, first + n) of a head of `rows`, mapped. Lanes behind the last column are 0.
template <class T>
inline void load_mapped(const HeadRows<const T>& x, long b, long h, long first, long n, long columns, FeatureMap map,
                        long rows, const Panel<T>& to) {
  for (long i = 0; i < n; ++i) {
    fetch_row(x, b, h, first + i + kAhead, rows, columns);
    const T* from = row_of(x, b, h, first + i);
    for (long c = 0; c < columns; c += kWidth<T>) {
      Batch<T> y = feature(map, load_some(from + c, columns - c));
      if (columns - c < kWidth<T>) y = select(first_lanes<T>(static_cast<int>(columns - c)), y, Batch<T>(T(0)));
      store_aligned(to.row(i) + c, y);
    }
  }
}

// Keys [first, first + n), mapped and weighted, and their values; zeros for those that are masked or weigh 0, whatever
// they hold. Returns whether all values are finite.
template <class T>
inline bool load_keys(const LinearProblem<T>& p, long b, long h, long first, long n, const Panel<T>& k,
                      const Panel<T>& v) {
  const long kv = h / (p.heads / p.kv_heads);
  load_mapped(p.k, b, kv, first, n, p.width, p.map, p.keys, k);
  load_mapped(p.v, b, kv, first, n, p.value_width, FeatureMap::identity, p.keys, v);
  const bool has_masked = has_masked_keys(p);
  const T* weight = p.weight == nullptr ? nullptr : p.weight + (b * p.heads + h) * p.keys + first;
  Batch<T> non_finite(T(0));
  for (long j = 0; j < n; ++j) {
    if ((has_masked && masked_key(p, b, first + j)) || (weight != nullptr && weight[j] == T(0))) {
      fill(Panel<T>{k.row(j), k.ld}, 1, T(0));
      fill(Panel<T>{v.row(j), v.ld}, 1, T(0));
    } else if (weight != nullptr) {
      const Batch<T> w(weight[j]);
      for (long c = 0; c < p.width; c += kWidth<T>) store_aligned(k.row(j) + c, load_aligned(k.row(j) + c) * w);
    }
    for (long c = 0; c < p.value_width; c += kWidth<T>)
      non_finite = fma(load_aligned(v.row(j) + c), Batch<T>(T(0)), non_finite);
  }
  return !any(isnan(non_finite));
}

template <class T>
inline T dot(const T* x, const T* y, long n) {
  Batch<T> sum(T(0));
  for (long c = 0; c < n; c += kWidth<T>) sum = fma(load_some(x + c, n - c), load_some(y + c, n - c), sum);
  return reduce_add(sum);
}

// c = tril(x y^T + u 1^T) for x, y [n, depth]; u null: zeros. Right of the triangle, c is 0 to the end of its half.
template <class T>
inline void lower_abt(long n, long depth, const Panel<T>& x, const Panel<T>& y, const T* u, const Panel<T>& c,
                      Fetch* fetch) {
  constexpr long w = kWidth<T>;
  for (long i = 0; i < n; i += kHalf) {
    const long rows = n - i < kHalf ? n - i : kHalf;
    block_abt<T>(Into::set, rows, i + rows, depth, T(1), x.read(i), y.read(), c.block(i), fetch);
    for (long r = i; r < i + rows; ++r) {
      const Batch<T> more(u == nullptr ? T(0) : u[r]);
      long j = 0;
      for (; u != nullptr && j + w <= r + 1; j += w) store_aligned(c.row(r) + j, load_aligned(c.row(r) + j) + more);
      j = (r + 1) / w * w;
      const Batch<T> zero(T(0));
      if (j <= r) {
        const Mask<T> below = first_lanes<T>(static_cast<int>(r + 1 - j));
        store_aligned(c.row(r) + j, select(below, load_aligned(c.row(r) + j) + more, zero));
        j += w;
      }
      for (; j < i + kHalf; j += w) store_aligned(c.row(r) + j, zero);
    }
  }
}
// c = or += t y for a lower triangle t [n, n], y [n, columns]
template <class T>
inline void lower_ab(Into into, long n, long columns, const Panel<T>& t, const Panel<T>& y, const Panel<T>& c,
                     Fetch* fetch) {
  for (long i = 0; i < n; i += kHalf) {
    const long rows = n - i < kHalf ? n - i : kHalf;
    block_ab<T>(into, rows, columns, i + rows, T(1), t.read(i), y.read(), c.block(i), fetch);
  }
}
// c = or += t^T y, likewise
template <class T>
inline void lower_atb(Into into, long n, long columns, const Panel<T>& t, const Panel<T>& y, const Panel<T>& c,
                      Fetch* fetch) {
  for (long j = 0; j < n; j += kHalf) {
    const long rows = n - j < kHalf ? n - j : kHalf;
    block_atb<T>(into, rows, columns, n - j, T(1), t.read(j, j), y.read(j), c.block(j), fetch);
  }
}

// z += x^T u for x [n, width]; u null: ones.
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

// A state: S [width, value_width] and z [width], or P and r.
template <class T>
struct Sums {
  Panel<T> s;
  T* z;
};

template <class T>
inline long state_row(const LinearProblem<T>& p) {
  return whole_vectors<T>(p.value_width);
}
template <class T>
inline long state_size(const LinearProblem<T>& p) {  // a whole number of cache lines, so that tasks share none
  return (p.width * state_row(p) + whole_vectors<T>(p.width) + 15) / 16 * 16;
}
template <class T>
inline Sums<T> state_at(const LinearProblem<T>& p, T* data) {
  return {{data, state_row(p)}, data + p.width * state_row(p)};
}

template <class T>
inline Sums<const T> read_state(const LinearProblem<T>& p, const T* data) {
  return {{data, state_row(p)}, data + p.width * state_row(p)};
}

// S += x^T y, z += x^T u; u null: ones.
template <class T>
inline void add_to(const Sums<T>& sums, long n, long width, long value_width, const Panel<T>& x, const Panel<T>& y,
                   const T* u, Fetch* fetch) {
  block_atb<T>(Into::add, width, value_width, n, T(1), x.read(), y.read(), sums.s.block(), fetch);
  add_rows(sums.z, n, width, x, u);
}

// Where the triangle of a causal problem lies: keys before `prefix` are seen by all queries, queries before `keyless`
// see none.
struct Alignment {
  long prefix, keyless;
};
template <class T>
inline Alignment alignment(const LinearProblem<T>& p) {
  if (!p.causal) return {p.keys, 0};
  return {p.keys > p.queries ? p.keys - p.queries : 0, p.queries > p.keys ? p.queries - p.keys : 0};
}

// Rows of a step: chunks enough that a state each is no more than the queries and keys.
template <class T>
inline long step_rows(const LinearProblem<T>& p) {
  return (p.width + kChunk - 1) / kChunk * kChunk;
}

struct Range {
  long first, count;
};
// The rows of step s: of keys before the triangle, or of queries.
template <class T>
inline Range rows_of_step(const LinearProblem<T>& p, long s) {
  const Alignment at = alignment(p);
  const long rows = step_rows(p), key_steps = (at.prefix + rows - 1) / rows;
  const long first = s < key_steps ? s * rows : at.keyless + (s - key_steps) * rows;
  const long end = s < key_steps ? at.prefix : p.queries;
  const long left = end - first;
  return {first, left < 0 ? 0 : left < rows ? left : rows};
}

inline long part(long i, long end) { return end - i < kChunk ? end - i : kChunk; }

}  // namespace heed::kernels::HEED_LEVEL::linear

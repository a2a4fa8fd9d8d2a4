// Backward: a block of keys and values stays near while all queries that see it pass by, tile by tile; their scores are
// computed again. Included only by attention.kernel.cpp.
#pragma once
#include "attention_forward.hpp"

namespace heed::kernels::HEED_LEVEL::attention {

template <class T>
inline constexpr int kBackLanes = 2 * kWidth<T>;  // queries of a tile
inline constexpr long kBackKeys = 256;            // keys of a task's block, taken kKeys at a time

template <class T>
struct BackwardScratch {
  T *keys, *dkeys, *values, *dvalues;    // [kBackKeys, k_stride], [kBackKeys, v_stride]
  T *queries, *query_rows;               // [width, lanes], [lanes, k_stride]
  T *douts, *dout_rows;                  // [value_width, lanes], [lanes, v_stride]
  T *lse, *delta;                        // [lanes]
  T *weights, *dscores, *addend, *rows;  // [kKeys, lanes]
  T *x, *slope;                          // [kKeys, lanes], of a function of scores: what it is given, f'; or null
  T* dqueries;                           // [width, lanes]
  long k_stride, v_stride;               // width and value_width in whole vectors

  BackwardScratch(const AttentionProblem<T>& p, Pieces<T>& from) {
    constexpr long lanes = kBackLanes<T>;
    k_stride = whole_vectors<T>(p.width);
    v_stride = whole_vectors<T>(p.value_width);
    weights = from.take(kKeys * lanes);
    dscores = from.take(kKeys * lanes);
    queries = from.take(p.width * lanes);
    query_rows = from.take(lanes * k_stride);
    douts = from.take(p.value_width * lanes);
    dout_rows = from.take(lanes * v_stride);
    lse = from.take(lanes);
    delta = from.take(lanes);
    dqueries = from.take(p.width * lanes);
    addend = from.take(kKeys * lanes);
    rows = from.take(kKeys * lanes);
    keys = from.take(kBackKeys * k_stride);
    values = from.take(kBackKeys * v_stride);
    dkeys = from.take(kBackKeys * k_stride);
    dvalues = from.take(kBackKeys * v_stride);
    const bool function = p.rules.f.apply != nullptr;
    x = function ? from.take(kKeys * lanes) : nullptr;
    slope = function && p.rules.f.sloped ? from.take(kKeys * lanes) : nullptr;
  }
};

// Whether all numbers of a block are: if not, what has no weight must be left out of sums, as 0 * NaN is NaN.
struct Finite {
  bool keys, queries, douts;
};

// Queries and output gradients of a tile, as rows and as columns; delta [lanes] = sum_d do * o. Rows without a key
// become zeros.
template <class T>
[[gnu::noinline]] void load_queries(const AttentionProblem<T>& p, const AttentionGradients<T>& d, const Place& at,
                                    const BackwardScratch<T>& x, Finite& finite) {
  constexpr int lanes = kBackLanes<T>;
  // lse [lanes]; inf, which makes all weights 0, in lanes of no query
  const T* lse = d.lse + (at.b * p.heads + at.h) * p.queries + at.query;
  for (int i = 0; i < lanes; ++i) x.lse[i] = i < at.rows ? lse[i] : kInfinity<T>;
  // query_rows [lanes, k_stride], dout_rows [lanes, v_stride], delta
  Batch<T> non_finite_query(T(0)), non_finite_dout(T(0));
  for (long i = 0; i < lanes; ++i) {
    T *query = x.query_rows + i * x.k_stride, *dout = x.dout_rows + i * x.v_stride;
    x.delta[i] = T(0);
    if (x.lse[i] == kInfinity<T>) {
      clear(query, p.width);
      clear(dout, p.value_width);
      continue;
    }
    copy_row(row_of(p.q, at.b, at.h, at.query + i), p.width, query, non_finite_query);
    copy_row(row_of(d.dout, at.b, at.h, at.query + i), p.value_width, dout, non_finite_dout);
    x.delta[i] = row_dot(row_of(d.out, at.b, at.h, at.query + i), dout, p.value_width);
  }
  finite.queries = !any(isnan(non_finite_query));
  finite.douts = !any(isnan(non_finite_dout));
  // queries [width, lanes] = scale query_rows^T, douts [value_width, lanes] = dout_rows^T
  const Batch<T> factor(static_cast<T>(p.scale * score_unit(p)));
  transpose<T>(x.query_rows, x.k_stride, long{lanes}, p.width, long{lanes},
               [&](long c, long i, Batch<T> y, int) { store_aligned(x.queries + c * lanes + i, y * factor); });
  transpose<T>(x.dout_rows, x.v_stride, long{lanes}, p.value_width, long{lanes},
               [&](long c, long i, Batch<T> y, int) { store_aligned(x.douts + c * lanes + i, y); });
}

// For a tile [keys, lanes]: weights: scores -> m p; dscores: do . v -> ds. `factor` holds m, or is null.
//   p = 2^(score - lse)     ds = p (m do . v - delta)     both 0, whatever they are made of, where the score is -inf
template <class T>
[[gnu::noinline]] void weights_and_dscores(const BackwardScratch<T>& x, long keys, const T* factor) {
  constexpr int w = kWidth<T>, lanes = kBackLanes<T>, v = lanes / w;
  const Batch<T> zero(T(0));
  Batch<T> lse[v], delta[v];
  unroll<v>([&](auto i) {
    lse[i] = load_aligned(x.lse + i * w);
    delta[i] = load_aligned(x.delta + i * w);
  });
  for (long j = 0; j < keys; ++j)
    unroll<v>([&](auto i) {
      const long at = j * lanes + i * w;
      const Batch<T> s = load_aligned(x.weights + at);
      const Batch<T> weight = select(s == minus_infinity<T>(), zero, exp2(s - lse[i]));
      Batch<T> dweight = load_aligned(x.dscores + at), used = weight;
      if (factor != nullptr) {
        dweight = dweight * load_aligned(factor + at);
        used = weight * load_aligned(factor + at);
      }
      store_aligned(x.weights + at, used);
      store_aligned(x.dscores + at, select(weight == zero, zero, weight * (dweight - delta[i])));
    });
}

// By what the function of scores is given: dx = f'(x) ds, and 0 where ds is, as x is anything in masked pairs.
template <class T>
[[gnu::noinline]] void chain_slope(const T* slope, long keys, T* dscores) {
  const Batch<T> zero(T(0));
  for (long i = 0; i < keys * kBackLanes<T>; i += kWidth<T>) {
    const Batch<T> ds = load_aligned(dscores + i);
    store_aligned(dscores + i, select(ds == zero, zero, ds * load_aligned(slope + i)));
  }
}

// dbias [queries, keys] of head (b, h) = dscores^T
template <class T>
inline void store_dbias(const AttentionProblem<T>& p, const Place& at, const T* dscores, T* dbias) {
  constexpr int w = kWidth<T>, lanes = kBackLanes<T>;
  for (long i = 0; i < at.rows; i += w)
    transpose<T>(dscores + i, lanes, at.keys, at.rows - i < w ? at.rows - i : w, at.keys,
                 [&](long row, long j, Batch<T> x, int n) {
                   const long query = (at.b * p.heads + at.h) * p.queries + at.query + i + row;
                   store_part(dbias + query * p.keys + at.key + j, x, n);
                 });
}

// One tile of queries against up to kKeys keys, which are the block's from `offset` on.
template <class T>
[[gnu::noinline]] void back_tile(const AttentionProblem<T>& p, const AttentionGradients<T>& d, const Place& at,
                                 long offset, const BackwardScratch<T>& x, const Finite& finite) {
  constexpr long lanes = kBackLanes<T>;
  const T *keys = x.keys + offset * x.k_stride, *values = x.values + offset * x.v_stride;
  T *dkeys = x.dkeys + offset * x.k_stride, *dvalues = x.dvalues + offset * x.v_stride;
  const long first = seen_by_first(p, at);
  // weights [keys, lanes] = keys queries, finished as forward's scores; dscores [keys, lanes] = values douts
  key_products<lanes>(keys, x.k_stride, x.queries, p.width, first, at.keys, x.weights);
  key_products<lanes>(values, x.v_stride, x.douts, p.value_width, first, at.keys, x.dscores);
  finish_scores<T, lanes>(p, at, x.weights, x.addend, x.rows, d.context != nullptr ? x.x : nullptr, x.slope);
  // lanes of no query see nothing, though a masked key may be NaN
  for (long j = 0; at.rows < lanes && j < at.keys; ++j)
    for (long i = at.rows; i < lanes; ++i) x.weights[j * lanes + i] = -kInfinity<T>;
  // weights = m p, dscores = ds
  if (p.drop_below != 0) dropout_factors<T, lanes>(p, at, x.addend);
  weights_and_dscores(x, at.keys, p.drop_below != 0 ? x.addend : nullptr);
  // gradients of the function's parameters; dscores = dx
  if (d.context != nullptr) p.rules.f.sum(*d.context, tile_at(p, at, lanes), x.x, x.dscores);
  if (x.slope != nullptr) chain_slope(x.slope, at.keys, x.dscores);
  if (d.dbias != nullptr) store_dbias(p, at, x.dscores, d.dbias);
  // dvalues [keys, value_width] += weights dout_rows
  if (d.dv.data != nullptr)
    key_sums<lanes>(finite.douts, x.dout_rows, x.v_stride, x.weights, p.value_width, first, at.keys, dvalues);
  // dkeys [keys, width] += dscores query_rows
  if (d.dk.data != nullptr)
    key_sums<lanes>(finite.queries, x.query_rows, x.k_stride, x.dscores, p.width, first, at.keys, dkeys);
  // dqueries [width, lanes] += keys^T dscores
  if (d.dq.data != nullptr)
    query_sums<lanes, Finish::add>(finite.keys, keys, x.k_stride, x.dscores, p.width, first, at.keys,
                                   static_cast<const T*>(nullptr), x.dqueries);
}

// Rows [row, row + rows) of head (b, h) (+)= factor * from [rows, stride]: dk and dv.
template <class T>
inline void write_rows(const T* from, long stride, const HeadRows<T>& to, long b, long h, long row, long rows,
                       long width, T factor, bool add) {
  for (long j = 0; j < rows; ++j) put_row(row_of(to, b, h, row + j), from + j * stride, width, factor, add);
}

// Rows [query, query + rows) of dq (+)= scale * dqueries^T, dqueries [width, lanes].
template <class T>
inline void write_dqueries(const AttentionProblem<T>& p, const AttentionGradients<T>& d, long b, long h, long query,
                           long rows, const T* dqueries) {
  constexpr int w = kWidth<T>;
  for (long i = 0; i < rows; i += w)
    transpose<T>(dqueries + i, long{kBackLanes<T>}, p.width, rows - i < w ? rows - i : w, p.width,
                 [&](long row, long c, Batch<T> x, int n) {
                   put_lanes(row_of(d.dq, b, h, query + i + row) + c, x * Batch<T>(p.scale), n, d.add_dq);
                 });
}

// Where the group adds up its share of dq for a tile: [width, lanes].
template <class T>
inline T* partial_of(const AttentionProblem<T>& p, const AttentionGradients<T>& d, long group, long b, long h,
                     long tile) {
  constexpr long lanes = kBackLanes<T>;
  const long tiles = (p.queries + lanes - 1) / lanes;
  return d.partial_dq + (((group * p.batch + b) * p.heads + h) * tiles + tile) * p.width * lanes;
}

// Asked for while tile t of head h is worked on: the tile `next`, and its share of the next block of keys of this head
// or the one that follows.
template <class T>
inline void prefetch_next(const AttentionProblem<T>& p, const AttentionGradients<T>& d, long b, long h, long t,
                          long next, long tiles, long begin, long group) {
  constexpr long lanes = kBackLanes<T>;
  const long shared = p.heads / p.kv_heads, next_h = next < tiles ? h : h + 1 < p.heads ? h + 1 : 0;
  const long next_b = next < tiles || next_h > 0 ? b : b + 1, query = next < tiles ? next * lanes : 0;
  if (next_b < p.batch) {
    const long end = query + lanes < p.queries ? query + lanes : p.queries;
    prefetch_rows(p.q, next_b, next_h, query, end, p.width);
    prefetch_rows(d.out, next_b, next_h, query, end, p.value_width);
    prefetch_rows(d.dout, next_b, next_h, query, end, p.value_width);
    if (d.partial_dq == nullptr) prefetch_rows(d.dq, next_b, next_h, query, end, p.width);
  }
  if ((h + 1) % shared != 0) return;
  const long kv_head = h / shared;
  const bool here = begin + d.groups * kBackKeys < p.keys;
  const long key_head = here                       ? kv_head
                        : kv_head + 1 < p.kv_heads ? kv_head + 1
                                                   : 0,
             key_b = here || key_head > 0 ? b : b + 1;
  if (key_b == p.batch) return;
  const long key = here ? begin + d.groups * kBackKeys : group * kBackKeys;
  const Share s = share_of(key, key + kBackKeys < p.keys ? key + kBackKeys : p.keys, t, tiles);
  prefetch_rows(p.k, key_b, key_head, s.begin, s.end, p.width);
  prefetch_rows(p.v, key_b, key_head, s.begin, s.end, p.value_width);
  prefetch_rows(d.dk, key_b, key_head, s.begin, s.end, p.width);
  prefetch_rows(d.dv, key_b, key_head, s.begin, s.end, p.value_width);
}

// Keys [begin, begin + keys) of head (b, kv_head) against all queries that see them: dk and dv of these keys, and their
// share of dq, which is added up tile by tile: in partial_dq by the group's blocks, and else, with one block, written
// at once.
template <class T>
inline void back_block(const AttentionProblem<T>& p, const AttentionGradients<T>& d, long b, long kv_head, long begin,
                       long keys, long group, const BackwardScratch<T>& x) {
  constexpr long lanes = kBackLanes<T>;
  const long shared = p.heads / p.kv_heads, tiles = (p.queries + lanes - 1) / lanes;
  const auto rows_of = [&](long t) { return p.queries - t * lanes < lanes ? p.queries - t * lanes : lanes; };
  // how many of the block's keys the last query of tile t sees
  const auto seen_of = [&](long t) {
    const long limit = key_end(p, b, t * lanes + rows_of(t) - 1) - begin;
    return limit < keys ? limit : keys;
  };
  // the first tile from t on that sees the block; with one block, any tile, as its dq is written here
  const auto next_tile = [&](long h, long t) {
    for (; d.partial_dq != nullptr && t < tiles; ++t)
      for (long first = 0; first < seen_of(t); first += kKeys)
        if (kind_of(p, b, h, t * lanes, begin + first) != BlockKind::none) return t;
    return t;
  };
  // keys [seen, width] and values [seen, value_width]; dkeys = dvalues = 0
  const long reach = key_end(p, b, p.queries - 1) - begin, seen = reach < keys ? reach : keys;
  Finite finite{pack_keys(p, p.k, b, kv_head, begin, seen, p.width, x.keys), true, true};
  pack_keys(p, p.v, b, kv_head, begin, seen, p.value_width, x.values);
  clear(x.dkeys, keys * x.k_stride);
  clear(x.dvalues, keys * x.v_stride);
  for (long h = kv_head * shared; h < (kv_head + 1) * shared; ++h)
    for (long t = next_tile(h, 0), next; t < tiles; t = next) {
      next = next_tile(h, t + 1);
      Place at{b, h, t * lanes, rows_of(t), 0, 0};
      load_queries(p, d, at, x, finite);
      prefetch_next(p, d, b, h, t, next, tiles, begin, group);
      // dqueries [width, lanes]: 0, or the sum of the group's blocks so far
      BackwardScratch<T> y = x;
      if (d.partial_dq != nullptr) y.dqueries = partial_of(p, d, group, b, h, t);
      if (d.dq.data != nullptr && (d.partial_dq == nullptr || begin == group * kBackKeys))
        clear(y.dqueries, p.width * lanes);
      for (long first = 0, tile_keys = seen_of(t); first < tile_keys; first += kKeys) {
        at.key = begin + first;
        at.keys = tile_keys - first < kKeys ? tile_keys - first : kKeys;
        if (kind_of(p, b, h, at.query, at.key) != BlockKind::none) back_tile(p, d, at, first, y, finite);
      }
      if (d.dq.data != nullptr && d.partial_dq == nullptr) write_dqueries(p, d, b, h, at.query, at.rows, y.dqueries);
    }
  if (d.dk.data != nullptr) write_rows(x.dkeys, x.k_stride, d.dk, b, kv_head, begin, keys, p.width, p.scale, d.add_dk);
  if (d.dv.data != nullptr)
    write_rows(x.dvalues, x.v_stride, d.dv, b, kv_head, begin, keys, p.value_width, T(1), d.add_dv);
}

template <class T>
void backward(const AttentionProblem<T>& p, const AttentionGradients<T>& d, int64_t b, int64_t kv_head, int64_t group,
              T* scratch) {
  Pieces<T> pieces{scratch};
  const BackwardScratch<T> x(p, pieces);
  if (p.keys == 0 && group == 0) return back_block(p, d, b, kv_head, 0, 0, 0, x);
  for (long begin = group * kBackKeys; begin < p.keys; begin += d.groups * kBackKeys)
    back_block(p, d, b, kv_head, begin, p.keys - begin < kBackKeys ? p.keys - begin : kBackKeys, group, x);
}

template <class T>
void combine(const AttentionProblem<T>& p, const AttentionGradients<T>& d, int64_t b, int64_t h, int64_t tile) {
  constexpr int w = kWidth<T>, lanes = kBackLanes<T>;
  const long query = tile * lanes, rows = p.queries - query < lanes ? p.queries - query : lanes;
  const long limit = key_end(p, b, query + rows - 1);
  T* sum = partial_of(p, d, 0, b, h, tile);
  if (limit == 0) clear(sum, p.width * lanes);
  // sum [width, lanes] = of all groups that have a block of keys which the tile sees
  for (long g = 1; g < d.groups && g * kBackKeys < limit; ++g) {
    const T* x = partial_of(p, d, g, b, h, tile);
    for (long i = 0; i < p.width * lanes; i += w) store_aligned(sum + i, load_aligned(sum + i) + load_aligned(x + i));
  }
  write_dqueries(p, d, b, h, query, rows, sum);
}

}  // namespace heed::kernels::HEED_LEVEL::attention

// Backward: a block of keys and values stays in cache while all queries that see it are processed, tile by tile. Their
// scores are computed again. Included only by attention kernels.
#pragma once
#include "forward.hpp"

namespace heed::kernels::HEED_LEVEL::attention {

// Queries per tile: the same number on every level, since the gradients of keys are summed tile by tile.
template <class T>
inline constexpr int kBackLanes = 2 * kSumLanes<T>;
inline constexpr long kBackKeys = 512;  // max keys per block of a task, taken kKeys at a time

template <class F>
struct BackwardScratch {
  using T = ValueOf<F>;
  Matrix<F> keys, values;           // [kBackKeys, width], [kBackKeys, value_width]
  T *dkeys, *dvalues;               // the same, rows k_stride and v_stride apart
  Matrix<F> query_rows, dout_rows;  // [lanes, width], [lanes, value_width]
  ElementOf<F>*queries, *douts;     // [width, lanes], [value_width, lanes]
  T *lse, *delta;                   // [lanes]
  ScoreTiles<F> weights, dscores;   // [kKeys, lanes]
  T *addend, *rows;                 // [kKeys, lanes]
  T *x, *slope;                     // [kKeys, lanes]: inputs and derivatives of the function of scores; or null
  T* dqueries;                      // [lanes, k_stride]
  long k_stride, v_stride;          // width and value_width in whole vectors

  BackwardScratch(const typename F::Problem& p, Pieces<T>& from) {
    constexpr long lanes = kBackLanes<T>;
    k_stride = whole_vectors<T>(p.width);
    v_stride = whole_vectors<T>(p.value_width);
    weights = take_scores<F>(from, kKeys, lanes);
    dscores = take_scores<F>(from, kKeys, lanes);
    queries = from.template take_as<ElementOf<F>>(steps_of<F>(p.width) * lanes);
    query_rows = take_matrix<F>(from, lanes, p.width);
    douts = from.template take_as<ElementOf<F>>(steps_of<F>(p.value_width) * lanes);
    dout_rows = take_matrix<F>(from, lanes, p.value_width);
    lse = from.take(lanes);
    delta = from.take(lanes);
    dqueries = from.take(lanes * k_stride);
    addend = from.take(kKeys * lanes);
    rows = from.take(kKeys * lanes);
    keys = take_matrix<F>(from, kBackKeys, p.width);
    values = take_matrix<F>(from, kBackKeys, p.value_width);
    dkeys = from.take(kBackKeys * k_stride);
    dvalues = from.take(kBackKeys * v_stride);
    const bool function = p.rules.f.apply != nullptr;
    x = function ? from.take(kKeys * lanes) : nullptr;
    slope = function && p.rules.f.sloped ? from.take(kKeys * lanes) : nullptr;
  }
};

// Whether all numbers of a block are finite. If not, terms of weight 0 must be left out of sums, since 0 * NaN is NaN.
struct Finite {
  bool keys, queries, douts;
};

// Loads queries and output gradients of a tile, as rows and as columns, and delta [lanes] = sum_d do * o. Rows without
// a key become zeros.
template <class F>
[[gnu::noinline]] void load_queries(const typename F::Problem& p, const typename F::Gradients& d, const Place& at,
                                    const BackwardScratch<F>& x, Finite& finite) {
  using T = ValueOf<F>;
  constexpr int lanes = kBackLanes<T>;
  // lse [lanes]; inf in lanes without a query, which makes all their weights 0
  const T* lse = d.lse + (at.b * p.heads + at.h) * p.queries + at.query;
  for (int i = 0; i < lanes; ++i) x.lse[i] = i < at.rows ? lse[i] : kInfinity<T>;
  // query_rows [lanes, width], dout_rows [lanes, value_width], delta
  Batch<T> non_finite_query(T(0)), non_finite_dout(T(0));
  for (long i = 0; i < lanes; ++i) {
    ElementOf<F>*query = x.query_rows.rows + i * x.query_rows.row_stride,
    *to_dout = x.dout_rows.rows + i * x.dout_rows.row_stride;
    x.delta[i] = T(0);
    if (x.lse[i] == kInfinity<T>) {
      clear(query, x.query_rows.row_stride);
      clear(to_dout, x.dout_rows.row_stride);
      continue;
    }
    copy_row(row_of(p.q, at.b, at.h, at.query + i), p.width, query, non_finite_query);
    copy_row(row_of(d.dout, at.b, at.h, at.query + i), p.value_width, to_dout, non_finite_dout);
    x.delta[i] = delta_of<F>(row_of(d.out, at.b, at.h, at.query + i), row_of(d.rest, at.b, at.h, at.query + i), to_dout,
                             p.value_width);
  }
  finite.queries = !any(isnan(non_finite_query));
  finite.douts = !any(isnan(non_finite_dout));
  pair_up(x.query_rows, lanes);
  pair_up(x.dout_rows, lanes);
  // queries [width, lanes] = scale query_rows^T (bf16: query_rows^T), douts [value_width, lanes] = dout_rows^T
  pack_columns<F>(x.query_rows, p.width, lanes, score_factor<F>(p), x.queries);
  pack_columns<F>(x.dout_rows, p.value_width, lanes, T(1), x.douts);
}

// For two vectors of lanes, from lane `first` on, of a tile [keys, lanes]: turns the scores in x.weights into m p, and
// do . v in x.dscores into ds. `factor` holds m, if kDropped.
//   p = 2^(score - lse)     ds = p (m do . v - delta)     both are 0 where the score is -inf, whatever the rest is
// kRounded: the results are stored to the rows of the operands only.
template <class F, bool kRounded, bool kDropped>
inline void weights_of_lanes(const BackwardScratch<F>& x, long first, long keys, const ValueOf<F>* factor) {
  using T = ValueOf<F>;
  constexpr int w = kWidth<T>, lanes = kBackLanes<T>, v = 2;
  const Batch<T> zero(T(0));
  Batch<T> lse[v], delta[v];
  unroll<v>([&](auto i) {
    lse[i] = load_aligned(x.lse + first + i * w);
    delta[i] = load_aligned(x.delta + first + i * w);
  });
  for (long j = 0; j < keys; ++j) {
    Batch<T> used[v], dscore[v];
    unroll<v>([&](auto i) {
      const long at = j * lanes + first + i * w;
      const Batch<T> s = load_aligned(x.weights.values + at);
      const Batch<T> weight = select(s == minus_infinity<T>(), zero, exp2(s - lse[i]));
      Batch<T> dweight = load_aligned(x.dscores.values + at);
      used[i] = weight;
      if constexpr (kDropped) {
        dweight = dweight * load_aligned(factor + at);
        used[i] = weight * load_aligned(factor + at);
      }
      dscore[i] = select(weight == zero, zero, weight * (dweight - delta[i]));
      if constexpr (!kRounded) {
        store_aligned(x.weights.values + at, used[i]);
        store_aligned(x.dscores.values + at, dscore[i]);
      }
    });
    if constexpr (kRounded) {
      RoundedRow<F>::put_rows(x.weights, j, first, {used[0], used[1]});
      RoundedRow<F>::put_rows(x.dscores, j, first, {dscore[0], dscore[1]});
    }
  }
}

// The same for all lanes. In two vectors of lanes, keys that the causal triangle hides from all of these lanes get
// zeros.
template <class F, bool kRounded>
[[gnu::noinline]] void weights_and_dscores(const BackwardScratch<F>& x, long keys, long reach,
                                           const ValueOf<F>* factor) {
  using T = ValueOf<F>;
  constexpr int both = 2 * kWidth<T>, lanes = kBackLanes<T>;
  for (long first = 0; first < lanes; first += both) {
    const long seen = lanes == both ? keys : seen_of_lanes(reach, first + both, keys);
    if (factor == nullptr)
      weights_of_lanes<F, kRounded, false>(x, first, seen, factor);
    else
      weights_of_lanes<F, kRounded, true>(x, first, seen, factor);
    for (long j = seen; j < keys; ++j) {
      clear(x.weights.values + j * lanes + first, both);
      clear(x.dscores.values + j * lanes + first, both);
      if constexpr (kRounded) {
        RoundedRow<F>::put_rows(x.weights, j, first, {});
        RoundedRow<F>::put_rows(x.dscores, j, first, {});
      }
    }
  }
}

// The chain rule for the function of scores: dx = f'(x) ds, or 0 where ds is 0, since x is anything in masked pairs.
template <class T>
[[gnu::noinline]] void chain_slope(const T* slope, long keys, T* dscores) {
  const Batch<T> zero(T(0));
  for (long i = 0; i < keys * kBackLanes<T>; i += kWidth<T>) {
    const Batch<T> ds = load_aligned(dscores + i);
    store_aligned(dscores + i, select(ds == zero, zero, ds * load_aligned(slope + i)));
  }
}

// dbias [queries, keys] of head (b, h) = dscores^T
template <class T, class S>
inline void store_dbias(const AttentionProblem<T, S>& p, const Place& at, const T* dscores, T* dbias) {
  constexpr int w = kWidth<T>, lanes = kBackLanes<T>;
  for (long i = 0; i < at.rows; i += w)
    transpose<T>(dscores + i, lanes, at.keys, at.rows - i < w ? at.rows - i : w, at.keys,
                 [&](long row, long j, Batch<T> x, int n) {
                   const long query = (at.b * p.heads + at.h) * p.queries + at.query + i + row;
                   store_part(dbias + query * p.keys + at.key + j, x, n);
                 });
}

// A tile of queries against up to kKeys keys of the block, which start at `offset` in the block.
template <class T>
struct BackTile {
  Place at;
  long offset;
  T* dqueries;  // [lanes, width in whole vectors]
  bool begun;   // dqueries hold a sum
  Finite finite;
};

// Adds the products of the tile to the gradients.
template <class F>
[[gnu::noinline]] void back_tile(const typename F::Problem& p, const typename F::Gradients& d,
                                 const BackTile<ValueOf<F>>& tile, const BackwardScratch<F>& x, Fetch& fetch) {
  using T = ValueOf<F>;
  constexpr long lanes = kBackLanes<T>;
  const Place& at = tile.at;
  const Finite& finite = tile.finite;
  const Matrix<F> keys = x.keys.from(tile.offset), values = x.values.from(tile.offset);
  T *weights = x.weights.values, *dscores = x.dscores.values;
  const VisiblePairs pairs{at.rows, at.keys, reach_of(p, at)};
  // weights [keys, lanes] = keys queries, finished as scores in forward; dscores [keys, lanes] = values douts
  key_products<F, lanes, kScoreFinish<F>>(keys, x.queries, p.width, pairs, score_factor<F>(p), weights, &fetch);
  key_products<F, lanes, Finish::set>(values, x.douts, p.value_width, pairs, T(1), dscores, &fetch);
  finish_scores<lanes>(p, at, weights, x.addend, x.rows, d.context != nullptr ? x.x : nullptr, x.slope);
  // lanes without a query see no key, even if a masked key is NaN
  for (long j = 0; at.rows < lanes && j < at.keys; ++j)
    for (long i = at.rows; i < lanes; ++i) weights[j * lanes + i] = -kInfinity<T>;
  // weights = m p, dscores = ds
  if (p.drop_below != 0) dropout_factors<lanes>(p, at, x.addend);
  const T* dropped = p.drop_below != 0 ? x.addend : nullptr;
  if (d.context == nullptr && x.slope == nullptr && d.dbias == nullptr) {
    weights_and_dscores<F, F::kDots>(x, at.keys, pairs.reach, dropped);
  } else {
    weights_and_dscores<F, false>(x, at.keys, pairs.reach, dropped);
    // gradients of the function's parameters; dscores = dx
    if (d.context != nullptr) p.rules.f.sum(*d.context, tile_at(p, at, lanes), x.x, dscores);
    if (x.slope != nullptr) chain_slope(x.slope, at.keys, dscores);
    if (d.dbias != nullptr) store_dbias(p, at, dscores, d.dbias);
    round_scores(x.weights, at.keys, lanes);
    round_scores(x.dscores, at.keys, lanes);
  }
  // dvalues [keys, value_width] += weights dout_rows
  if (d.dv.data != nullptr)
    key_sums<F, lanes>({x.dout_rows, p.value_width, finite.douts}, x.weights.operand, pairs,
                       x.dvalues + tile.offset * x.v_stride, &fetch);
  // dkeys [keys, width] += dscores query_rows
  if (d.dk.data != nullptr)
    key_sums<F, lanes>({x.query_rows, p.width, finite.queries}, x.dscores.operand, pairs,
                       x.dkeys + tile.offset * x.k_stride, &fetch);
  // dqueries [lanes, width] += dscores^T keys
  if (d.dq.data == nullptr) return;
  pair_up(x.dscores.operand, at.keys);
  query_sums<F, lanes, Finish::add>({keys, p.width, finite.keys}, x.dscores.operand, pairs, tile.begun, nullptr,
                                    tile.dqueries, &fetch);
}

// Rows of a head = (or +=, if add) factor * from [at.n, stride], for dq, dk and dv.
template <class T>
inline void write_rows(const T* from, long stride, const HeadRows<T>& to, const HeadPart& at, long width, T factor,
                       bool add) {
  for (long j = 0; j < at.n; ++j) put_row(row_of(to, at.b, at.h, at.first + j), from + j * stride, width, factor, add);
}

template <class T, class S>
inline long tiles_of(const AttentionProblem<T, S>& p) {
  return (p.queries + kBackLanes<T> - 1) / kBackLanes<T>;
}

// Elements of dq per tile: [lanes, width in whole vectors].
template <class T, class S>
int64_t tile_size(const AttentionProblem<T, S>& p) {
  return kBackLanes<T> * whole_vectors<T>(p.width);
}

// Where the group sums its share of dq for a tile.
template <class T, class S>
inline T* partial_of(const AttentionProblem<T, S>& p, const AttentionGradients<T, S>& d, long group, long b, long h,
                     long tile) {
  return d.partial_dq + (((group * p.batch + b) * p.heads + h) * tiles_of(p) + tile) * tile_size(p);
}

// The rows to prefetch during the work on tile t of head h against a group's block of keys: those of tile `next`, and a
// share of the next block, of this head or the next one.
template <class T, class S>
inline Fetch next_of_backward(const AttentionProblem<T, S>& p, const AttentionGradients<T, S>& d, const HeadPart& block,
                              long group, long h, long t, long next) {
  constexpr long lanes = kBackLanes<T>;
  Fetch fetch;
  const long b = block.b, shared = p.heads / p.kv_heads, tiles = tiles_of(p);
  const long next_h = next < tiles ? h : h + 1 < p.heads ? h + 1 : 0;
  const long next_b = next < tiles || next_h > 0 ? b : b + 1, query = next < tiles ? next * lanes : 0;
  if (next_b < p.batch) {
    const HeadPart queries{next_b, next_h, query, lanes < p.queries - query ? lanes : p.queries - query};
    fetch_rows(fetch, p.q, queries, p.width);
    fetch_rows(fetch, d.dout, queries, p.value_width);
    fetch_rows(fetch, d.out, queries, p.value_width);
    fetch_rows(fetch, d.rest, queries, p.value_width);
    if (d.partial_dq == nullptr) fetch_rows(fetch, d.dq, queries, p.width);
  }
  if ((h + 1) % shared != 0) return fetch;
  const bool here = block.first + d.groups * d.block_keys < p.keys;
  const long key_head = here                       ? block.h
                        : block.h + 1 < p.kv_heads ? block.h + 1
                                                   : 0,
             key_b = here || key_head > 0 ? b : b + 1;
  if (key_b == p.batch) return fetch;
  // rows of the block, of which each tile fetches a share
  const long key = here ? block.first + d.groups * d.block_keys : group * d.block_keys,
             n = d.block_keys < p.keys - key ? d.block_keys : p.keys - key, from = n * t / tiles,
             to = n * (t + 1) / tiles;
  const HeadPart keys{key_b, key_head, key + from, to - from};
  fetch_rows(fetch, p.k, keys, p.width);
  fetch_rows(fetch, p.v, keys, p.value_width);
  fetch_rows(fetch, d.dk, keys, p.width);
  fetch_rows(fetch, d.dv, keys, p.value_width);
  return fetch;
}

// The queries of a tile against the keys of the group's block that they see: `at` is the place of all of these keys.
// With several blocks of keys, each group sums its share of dq in partial_dq, tile by tile. With one block, dq is
// written at once.
template <class F>
inline void back_queries(const typename F::Problem& p, const typename F::Gradients& d, const Place& at, long group,
                         bool finite_keys, const BackwardScratch<F>& x, Fetch& fetch) {
  BackTile<ValueOf<F>> tile{at, 0, x.dqueries, false, {finite_keys, true, true}};
  load_queries<F>(p, d, at, x, tile.finite);
  if (d.partial_dq != nullptr) {
    tile.dqueries = partial_of(p, d, group, at.b, at.h, at.query / kBackLanes<ValueOf<F>>);
    // by an earlier block, or by zeros
    tile.begun = at.key != group * d.block_keys || p.rules.blocks != nullptr || p.documents != nullptr;
  }
  for (long first = 0; first < at.keys; first += kKeys) {
    tile.offset = first;
    tile.at.key = at.key + first;
    tile.at.keys = at.keys - first < kKeys ? at.keys - first : kKeys;
    if (is_hidden(p, at.b, at.h, at.query, tile.at.key)) continue;
    back_tile<F>(p, d, tile, x, fetch);
    tile.begun = true;
  }
  if (d.dq.data == nullptr) return;
  if (!tile.begun) clear(tile.dqueries, tile_size(p));
  if (d.partial_dq == nullptr)
    write_rows(tile.dqueries, x.k_stride, d.dq, {at.b, at.h, at.query, at.rows}, p.width, p.scale, d.add_dq);
}

// A group's block of keys against all queries that see it. Computes dk and dv of these keys, and their share of dq.
template <class F>
inline void back_block(const typename F::Problem& p, const typename F::Gradients& d, const HeadPart& block, long group,
                       const BackwardScratch<F>& x) {
  using T = ValueOf<F>;
  constexpr long lanes = kBackLanes<T>;
  const long shared = p.heads / p.kv_heads, tiles = tiles_of(p);
  const auto rows_of = [&](long t) { return p.queries - t * lanes < lanes ? p.queries - t * lanes : lanes; };
  // how many of the block's keys are visible to the last query of tile t
  const auto seen_of = [&](long t) {
    const long limit = key_end(p, block.b, t * lanes + rows_of(t) - 1) - block.first;
    return limit < block.n ? limit : block.n;
  };
  // the first tile from t on that sees the block; with one block, any tile, since its dq is written here
  const auto next_tile = [&](long h, long t) {
    for (; d.partial_dq != nullptr && t < tiles; ++t)
      for (long first = 0; first < seen_of(t); first += kKeys)
        if (!is_hidden(p, block.b, h, t * lanes, block.first + first)) return t;
    return t;
  };
  // keys [seen.n, width] and values [seen.n, value_width]; dkeys = dvalues = 0
  HeadPart seen = block;
  if (const long reach = key_end(p, block.b, p.queries - 1) - block.first; reach < seen.n) seen.n = reach;
  const bool finite_keys = pack_keys<F>(p, p.k, seen, p.width, x.keys);
  pack_keys<F>(p, p.v, seen, p.value_width, x.values);
  if (d.dq.data != nullptr) pair_up(x.keys, seen.n);
  clear(x.dkeys, block.n * x.k_stride);
  clear(x.dvalues, block.n * x.v_stride);
  for (long h = block.h * shared; h < (block.h + 1) * shared; ++h)
    for (long t = next_tile(h, 0), next; t < tiles; t = next) {
      next = next_tile(h, t + 1);
      const long keys = seen_of(t);
      // keys whose products are computed
      const long hidden = first_block(p, block.b, t * lanes) - block.first, n = keys - (hidden < 0 ? 0 : hidden);
      Fetch fetch = next_of_backward(p, d, block, group, h, t, next);
      fetch.spread(2 * register_tiles<F>(n, lanes) + register_tiles<F>(n, x.k_stride) +
                   register_tiles<F>(n, x.v_stride) + (n + kKeys - 1) / kKeys * register_tiles<F>(lanes, x.k_stride));
      back_queries<F>(p, d, {block.b, h, t * lanes, rows_of(t), block.first, keys}, group, finite_keys, x, fetch);
    }
  if (d.dk.data != nullptr) write_rows(x.dkeys, x.k_stride, d.dk, block, p.width, p.scale, d.add_dk);
  if (d.dv.data != nullptr) write_rows(x.dvalues, x.v_stride, d.dv, block, p.value_width, T(1), d.add_dv);
}

template <class F>
void backward(const typename F::Problem& p, const typename F::Gradients& d, int64_t b, int64_t kv_head, int64_t group,
              ValueOf<F>* scratch) {
  Pieces<ValueOf<F>> pieces{scratch};
  const BackwardScratch<F> x(p, pieces);
  if (p.keys == 0 && group == 0) return back_block<F>(p, d, {b, kv_head, 0, 0}, 0, x);
  for (long key = group * d.block_keys; key < p.keys; key += d.groups * d.block_keys)
    back_block<F>(p, d, {b, kv_head, key, p.keys - key < d.block_keys ? p.keys - key : d.block_keys}, group, x);
}

template <class T, class S>
void combine(const AttentionProblem<T, S>& p, const AttentionGradients<T, S>& d, int64_t b, int64_t h, int64_t tile) {
  constexpr int w = kWidth<T>, lanes = kBackLanes<T>;
  const long stride = whole_vectors<T>(p.width), query = tile * lanes,
             rows = p.queries - query < lanes ? p.queries - query : lanes;
  const long limit = key_end(p, b, query + rows - 1);
  T* sum = partial_of(p, d, 0, b, h, tile);
  if (limit == 0) clear(sum, rows * stride);
  // sum [rows, width] over all groups that have a block of keys visible to the tile
  for (long g = 1; g < d.groups && g * d.block_keys < limit; ++g) {
    const T* x = partial_of(p, d, g, b, h, tile);
    for (long i = 0; i < rows * stride; i += w) store_aligned(sum + i, load_aligned(sum + i) + load_aligned(x + i));
  }
  write_rows(sum, stride, d.dq, {b, h, query, rows}, p.width, p.scale, d.add_dq);
}

}  // namespace heed::kernels::HEED_LEVEL::attention

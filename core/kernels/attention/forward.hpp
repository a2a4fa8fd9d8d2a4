// Forward: the query tiles of a task visit the keys block by block, front to back. Included only by attention kernels.
#pragma once
#include "pack.hpp"

namespace heed::kernels::HEED_LEVEL::attention {

template <class T>
inline constexpr int kLanes = 2 * kWidth<T>;  // queries per tile
inline constexpr long kKeys = 64;             // keys per block
inline constexpr long kTiles = 16;            // max tiles per task; they share each copied block of keys
static_assert(kKeys == kBlockKeys && kBlockQueries % kLanes<float> == 0 && kBlockQueries % kLanes<double> == 0);

template <class F>
struct ForwardScratch {
  using T = ValueOf<F>;
  Matrix<F> keys, values;     // [kKeys, width], [kKeys, value_width]
  ElementOf<F>* queries;      // of each tile: [width, lanes]
  Matrix<F> query_rows;       // [lanes, width], of the tile whose columns are packed; only with kDots
  T *outs, *top, *sum;        // of each tile: [lanes, value_width in whole vectors], [lanes], [lanes]
  ScoreTiles<F> scores;       // [kKeys, lanes], of the current tile
  T *addend, *rows;           // [kKeys, lanes]
  T* factor;                  // [lanes]
  long query_size, out_size;  // per tile

  ForwardScratch(const typename F::Problem& p, Pieces<T>& from) {
    constexpr long lanes = kLanes<T>;
    query_size = steps_of<F>(p.width) * lanes;
    out_size = lanes * whole_vectors<T>(p.value_width);
    keys = take_matrix<F>(from, kKeys, p.width);
    values = take_matrix<F>(from, kKeys, p.value_width);
    scores = take_scores<F>(from, kKeys, lanes);
    factor = from.take(lanes);
    addend = from.take(kKeys * lanes);
    rows = from.take(kKeys * lanes);
    top = from.take(kTiles * lanes);
    sum = from.take(kTiles * lanes);
    if (F::kDots) query_rows = take_matrix<F>(from, lanes, p.width);
    queries = from.template take_as<ElementOf<F>>(kTiles * query_size);
    outs = from.take(kTiles * out_size);
  }
};

// The factor of scores. In bf16 it is applied after the product, and pairs are used as they are; else to the queries.
template <class F>
inline ValueOf<F> score_factor(const typename F::Problem& p) {
  return static_cast<ValueOf<F>>(p.scale * score_unit(p));
}
template <class F>
inline constexpr Finish kScoreFinish = F::kDots ? Finish::scale : Finish::set;

// queries [width, lanes] = scale q^T (bf16: q^T). The running softmax starts with the sink, or empty.
template <class F>
inline void begin_tile(const typename F::Problem& p, const HeadPart& at, const ForwardScratch<F>& x, long t) {
  using T = ValueOf<F>;
  constexpr int w = kWidth<T>, lanes = kLanes<T>;
  ElementOf<F>* queries = x.queries + t * x.query_size;
  if constexpr (F::kDots) {
    Batch<T> any_number;
    for (long i = 0; i < lanes; ++i) {
      uint32_t* to = x.query_rows.rows + i * x.query_rows.row_stride;
      if (i < at.n)
        copy_row(row_of(p.q, at.b, at.h, at.first + i), p.width, to, any_number);
      else
        clear(to, x.query_rows.row_stride);
    }
    pack_columns<F>(x.query_rows, p.width, lanes, T(1), queries);
  } else {
    const Batch<T> factor(score_factor<F>(p));
    transpose<T>(row_of(p.q, at.b, at.h, at.first), p.q.row, at.n, p.width, long{lanes},
                 [&](long d, long i, Batch<T> y, int) { store_aligned(queries + d * lanes + i, y * factor); });
  }
  const Batch<T> sink(sink_of(p, at.h));
  for (int i = 0; i < lanes; i += w) {
    store_aligned(x.top + t * lanes + i, sink);
    store_aligned(x.sum + t * lanes + i, select(sink == minus_infinity<T>(), Batch<T>(T(0)), Batch<T>(T(1))));
  }
}

// out [at.n, value_width] = outs / sum, and lse = top + log2(sum). For a row without a key, out is 0 and lse is inf.
template <class F>
inline void end_tile(const typename F::Problem& p, const typename F::Output& y, const HeadPart& at,
                     const ForwardScratch<F>& x, long t) {
  using T = ValueOf<F>;
  constexpr int w = kWidth<T>, lanes = kLanes<T>;
  const long stride = whole_vectors<T>(p.value_width);
  const T *outs = x.outs + t * x.out_size, *top = x.top + t * lanes, *sum = x.sum + t * lanes;
  const Batch<T> zero(T(0)), infinity(kInfinity<T>);
  alignas(64) T inverse[lanes];
  for (int i = 0; i < lanes; i += w) {
    // inverse = 1 / sum, lse = top + log2(sum)
    const Batch<T> total = load_aligned(sum + i);
    const Mask<T> empty = total == zero;
    store_aligned(inverse + i, select(empty, zero, Batch<T>(T(1)) / total));
    if (y.lse == nullptr || i >= at.n) continue;
    const Batch<T> lse = select(empty, infinity, load_aligned(top + i) + log(total) * Batch<T>(T(kScoreUnit)));
    T* to = y.lse + (at.b * p.heads + at.h) * p.queries + at.first + i;
    store_part(to, lse, lanes_of<T>(at.n - i));
  }
  // out[i, :] = outs[i, :] * inverse[i]
  for (long i = 0; i < at.n; ++i) {
    auto* out = row_of(y.out, at.b, at.h, at.first + i);
    store_row<F>(out, outs + i * stride, p.value_width, inverse[i]);
    if constexpr (F::kDots)
      if (y.lse != nullptr)
        store_rest_row(row_of(y.rest, at.b, at.h, at.first + i), out, outs + i * stride, p.value_width, inverse[i]);
  }
}

// The first key of the first block that query i sees.
template <class T, class S>
inline long first_block(const AttentionProblem<T, S>& p, long b, long i) {
  return key_begin(p, b, i) / kKeys * kKeys;
}

// The rows to prefetch while queries of a head are computed with one block of keys: the next block, which starts at
// `key`. With the last block (`key` >= `limit`), the output of these queries and the inputs of the next queries are
// prefetched. The inputs are queries and first keys of the same head, or of the head that follows.
template <class T, class S>
inline Fetch next_of_forward(const AttentionProblem<T, S>& p, const AttentionOutput<T, S>& y, const HeadPart& queries,
                             long key, long limit) {
  Fetch fetch;
  const long b = queries.b, h = queries.h, end = queries.first + queries.n, shared = p.heads / p.kv_heads;
  const auto fetch_keys = [&](long batch, long head, long from, long last) {
    const HeadPart keys{batch, head, from, kKeys < last - from ? kKeys : last - from};
    fetch_rows(fetch, p.k, keys, p.width);
    fetch_rows(fetch, p.v, keys, p.value_width);
  };
  if (key < limit) {
    fetch_keys(b, h / shared, key, limit);
    return fetch;
  }
  fetch_rows(fetch, y.out, queries, p.value_width);
  const bool here = end < p.queries;
  const long next_h = here              ? h
                      : h + 1 < p.heads ? h + 1
                                        : 0,
             next_b = here || next_h > 0 ? b : b + 1, query = here ? end : 0, left = p.queries - query;
  if (next_b == p.batch) return fetch;
  fetch_rows(fetch, p.q, {next_b, next_h, query, queries.n < left ? queries.n : left}, p.width);
  if (here || next_h % shared == 0) fetch_keys(next_b, next_h / shared, first_block(p, next_b, query), p.keys);
  return fetch;
}

// Queries [begin, end) of head (b, h), as tiles, against all keys that they see. Each block of keys is copied once and
// used by all tiles. The running softmax of each tile (top, sum, outs) is kept in scratch.
template <class F>
void forward(const typename F::Problem& p, const typename F::Output& y, int64_t b, int64_t h, int64_t begin,
             int64_t end, ValueOf<F>* scratch) {
  using T = ValueOf<F>;
  constexpr long lanes = kLanes<T>;
  Pieces<T> pieces{scratch};
  const ForwardScratch<F> x(p, pieces);
  const long kv_head = h / (p.heads / p.kv_heads), tiles = (end - begin + lanes - 1) / lanes;
  const auto query_of = [&](long t) { return begin + t * lanes; };
  const auto rows_of = [&](long t) { return end - query_of(t) < lanes ? end - query_of(t) : lanes; };
  const auto tile_of = [&](long t) { return HeadPart{b, h, query_of(t), rows_of(t)}; };
  for (long t = 0; t < tiles; ++t) begin_tile<F>(p, tile_of(t), x, t);
  const long key_limit = key_end(p, b, end - 1);
  // the first block of keys, from `key` on, that is visible to any tile
  const auto next_block = [&](long key) {
    for (; key < key_limit; key += kKeys)
      for (long t = 0; t < tiles; ++t)
        if (!is_hidden(p, b, h, query_of(t), key)) return key;
    return key;
  };
  uint32_t begun = 0;  // bit t: outs of tile t hold a sum
  static_assert(kTiles <= 32);
  for (long key = next_block(first_block(p, b, begin)), next; key < key_limit; key = next) {
    next = next_block(key + kKeys);
    // keys [block_keys, width], values [block_keys, value_width]; masked keys and values are zeros
    const HeadPart block{b, kv_head, key, key_limit - key < kKeys ? key_limit - key : kKeys};
    pack_keys<F>(p, p.k, block, p.width, x.keys);
    const SummedRows<F> values{x.values, p.value_width, pack_keys<F>(p, p.v, block, p.value_width, x.values)};
    pair_up(x.values, block.n);
    // how many of the block's first keys are visible to tile t
    const auto seen_of = [&](long t) {
      const long limit = key_end(p, b, query_of(t) + rows_of(t) - 1) - key, n = limit < block.n ? limit : block.n;
      return n <= 0 || is_hidden(p, b, h, query_of(t), key) ? 0 : n;
    };
    Fetch fetch = next_of_forward(p, y, {b, h, begin, end - begin}, next, key_limit);
    long work = 0;
    for (long t = 0; t < tiles; ++t)
      if (const long n = seen_of(t); n > 0)
        work += register_tiles<F>(n, lanes) + register_tiles<F>(lanes, x.values.pair_stride);
    fetch.spread(work);
    for (long t = 0; t < tiles; ++t) {
      const long n = seen_of(t);
      if (n == 0) continue;
      const Place at{b, h, query_of(t), rows_of(t), key, n};
      T *scores = x.scores.values, *outs = x.outs + t * x.out_size;
      const VisiblePairs pairs{at.rows, at.keys, reach_of(p, at)};
      // scores [n, lanes] = keys queries, with bias, function and masks
      key_products<F, lanes, kScoreFinish<F>>(x.keys, x.queries + t * x.query_size, p.width, pairs, score_factor<F>(p),
                                              scores, &fetch);
      finish_scores<lanes>(p, at, scores, x.addend, x.rows);
      for (long i = 0; !values.finite && i < n * lanes; ++i) x.rows[i] = scores[i];
      // scores = 2^(scores - top), and factor [lanes], by which earlier sums are multiplied
      if (p.drop_below == 0) {
        softmax_step<F, lanes, F::kDots>(x.scores, n, x.top + t * lanes, x.sum + t * lanes, x.factor);
      } else {
        softmax_step<F, lanes, false>(x.scores, n, x.top + t * lanes, x.sum + t * lanes, x.factor);
        // dropout: scores *= 0 or keep; the sum above includes dropped weights
        dropout_factors<lanes>(p, at, x.addend);
        for (long i = 0; i < n * lanes; i += kWidth<T>)
          store_aligned(scores + i, load_aligned(scores + i) * load_aligned(x.addend + i));
        round_scores(x.scores, n, lanes);
        pair_up(x.scores.operand, n);
      }
      // outs [lanes, value_width] = outs * factor + scores^T values
      query_sums<F, lanes, Finish::rescale>(values, x.scores.operand, pairs, (begun >> t & 1) != 0, x.factor, outs,
                                            &fetch);
      if (!values.finite) spread_unweighted<F, lanes>(values, x.rows, x.scores.operand, pairs, outs);
      begun |= 1u << t;
    }
  }
  for (long t = 0; t < tiles; ++t) {
    if ((begun >> t & 1) == 0) clear(x.outs + t * x.out_size, x.out_size);
    end_tile<F>(p, y, tile_of(t), x, t);
  }
}

}  // namespace heed::kernels::HEED_LEVEL::attention

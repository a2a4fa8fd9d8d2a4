// Forward: a block of query tiles visits the keys in blocks, front to back. Included only by attention kernels.
#pragma once
#include "attention_pack.hpp"

namespace heed::kernels::HEED_LEVEL::attention {

template <class T>
inline constexpr int kLanes = 2 * kWidth<T>;  // queries of a tile
inline constexpr long kKeys = 64;             // keys of a block
inline constexpr long kTiles = 16;            // tiles of a task at most: what a block of keys is copied for
static_assert(kKeys == kBlockKeys && kBlockQueries % kLanes<float> == 0 && kBlockQueries % kLanes<double> == 0);

template <class F>
struct ForwardScratch {
  using T = ValueOf<F>;
  Matrix<F> keys, values;     // [kKeys, width], [kKeys, value_width]
  ElementOf<F>* queries;      // of each tile: [width, lanes]
  Matrix<F> query_rows;       // [lanes, width], of the tile whose queries are made, with dots alone
  T *outs, *top, *sum;        // of each tile: [value_width, lanes], [lanes], [lanes]
  ScoreTiles<F> scores;       // [kKeys, lanes], of the tile in work
  T *addend, *rows;           // [kKeys, lanes]
  T* factor;                  // [lanes]
  long query_size, out_size;  // of a tile

  ForwardScratch(const typename F::Problem& p, Pieces<T>& from) {
    constexpr long lanes = kLanes<T>;
    query_size = steps_of<F>(p.width) * lanes;
    out_size = p.value_width * lanes;
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

// What scores are multiplied by after the product: pairs of bf16 are taken as they are.
template <class F>
inline ValueOf<F> score_factor(const typename F::Problem& p) {
  return static_cast<ValueOf<F>>(p.scale * score_unit(p));
}
template <class F>
inline constexpr Finish kScoreFinish = F::kDots ? Finish::scale : Finish::set;

// queries [width, lanes] = scale q^T (bf16: q^T); outs = 0; the running softmax begins with the sink, or with nothing.
template <class F>
inline void begin_tile(const typename F::Problem& p, long b, long h, long query, long rows, const ForwardScratch<F>& x,
                       long t) {
  using T = ValueOf<F>;
  constexpr int w = kWidth<T>, lanes = kLanes<T>;
  ElementOf<F>* queries = x.queries + t * x.query_size;
  if constexpr (F::kDots) {
    Batch<T> any_number;
    for (long i = 0; i < lanes; ++i) {
      uint32_t* to = x.query_rows.rows + i * x.query_rows.row_stride;
      if (i < rows)
        copy_row(row_of(p.q, b, h, query + i), p.width, to, any_number);
      else
        clear(to, x.query_rows.row_stride);
    }
    pack_columns<F>(x.query_rows, p.width, lanes, T(1), queries);
  } else {
    const Batch<T> factor(score_factor<F>(p));
    transpose<T>(row_of(p.q, b, h, query), p.q.row, rows, p.width, long{lanes},
                 [&](long d, long i, Batch<T> y, int) { store_aligned(queries + d * lanes + i, y * factor); });
  }
  clear(x.outs + t * x.out_size, p.value_width * lanes);
  const Batch<T> sink(sink_of(p, h));
  for (int i = 0; i < lanes; i += w) {
    store_aligned(x.top + t * lanes + i, sink);
    store_aligned(x.sum + t * lanes + i, select(sink == minus_infinity<T>(), Batch<T>(T(0)), Batch<T>(T(1))));
  }
}

// out [rows, value_width] = (outs / sum)^T, and lse = top + log2(sum); a row without a key is 0, and its lse inf.
template <class T, class S>
inline void end_tile(const AttentionProblem<T, S>& p, const AttentionOutput<T, S>& y, long b, long h, long query,
                     long rows, const T* outs, const T* top, const T* sum) {
  constexpr int w = kWidth<T>, lanes = kLanes<T>;
  const Batch<T> zero(T(0)), infinity(kInfinity<T>);
  alignas(64) T inverse[lanes];
  for (int i = 0; i < lanes; i += w) {
    // inverse = 1 / sum, lse = top + log2(sum)
    const Batch<T> total = load_aligned(sum + i);
    const Mask<T> empty = total == zero;
    store_aligned(inverse + i, select(empty, zero, Batch<T>(T(1)) / total));
    if (y.lse == nullptr || i >= rows) continue;
    const Batch<T> lse = select(empty, infinity, load_aligned(top + i) + log(total) * Batch<T>(T(kLog2e)));
    T* to = y.lse + (b * p.heads + h) * p.queries + query + i;
    store_part(to, lse, lanes_of<T>(rows - i));
  }
  // out[i, :] = outs[:, i] * inverse[i], a vector of rows at a time
  for (long i = 0; i < rows; i += w)
    transpose<T>(outs + i, lanes, p.value_width, rows - i < w ? rows - i : w, p.value_width,
                 [&](long row, long d, Batch<T> x, int n) {
                   put_lanes(row_of(y.out, b, h, query + i + row) + d, x * Batch<T>(inverse[i + row]), n);
                 });
}

// What tile t of `tiles` asks for while it meets a block of keys: its share of the next block, at `key`; with the last
// block, its own output, and the queries and first keys of the head that follows.
template <class T, class S>
inline void prefetch_next(const AttentionProblem<T, S>& p, const AttentionOutput<T, S>& y, const Place& at, long key,
                          long limit, long end, long t, long tiles) {
  const long shared = p.heads / p.kv_heads;
  if (key < limit) {
    const Share s = share_of(key, key + kKeys < limit ? key + kKeys : limit, t, tiles);
    prefetch_rows(p.k, at.b, at.h / shared, s.begin, s.end, p.width);
    prefetch_rows(p.v, at.b, at.h / shared, s.begin, s.end, p.value_width);
    return;
  }
  prefetch_rows(y.out, at.b, at.h, at.query, at.query + at.rows, p.value_width);
  const long h = at.h + 1 < p.heads ? at.h + 1 : 0, b = h > 0 ? at.b : at.b + 1;
  if (end < p.queries || b == p.batch) return;
  const long rows = kTiles * kLanes<T> < p.queries ? kTiles * kLanes<T> : p.queries;
  const Share q = share_of(0, rows, t, tiles), s = share_of(0, kKeys < p.keys ? kKeys : p.keys, t, tiles);
  prefetch_rows(p.q, b, h, q.begin, q.end, p.width);
  if (h % shared != 0) return;
  prefetch_rows(p.k, b, h / shared, s.begin, s.end, p.width);
  prefetch_rows(p.v, b, h / shared, s.begin, s.end, p.value_width);
}

// Queries [begin, end) of head (b, h), as tiles, against all keys that they see. Each block of keys is copied once and
// met by all tiles, whose running softmax (top, sum, outs) waits in scratch.
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
  for (long t = 0; t < tiles; ++t) begin_tile<F>(p, b, h, query_of(t), rows_of(t), x, t);
  const long key_limit = key_end(p, b, end - 1);
  // the first block of keys from `key` on of which any tile sees something
  const auto next_block = [&](long key) {
    for (; key < key_limit; key += kKeys)
      for (long t = 0; t < tiles; ++t)
        if (kind_of(p, b, h, query_of(t), key) != BlockKind::none) return key;
    return key;
  };
  for (long key = next_block(0), next; key < key_limit; key = next) {
    next = next_block(key + kKeys);
    // keys [block_keys, width], values [block_keys, value_width]: masked ones are zeros
    const long block_keys = key_limit - key < kKeys ? key_limit - key : kKeys;
    pack_keys<F>(p, p.k, b, kv_head, key, block_keys, p.width, x.keys);
    const bool finite = pack_keys<F>(p, p.v, b, kv_head, key, block_keys, p.value_width, x.values);
    pair_up(x.values, block_keys);
    for (long t = 0; t < tiles; ++t) {
      // the tile sees the block's first n keys, its first vector of queries `first` of them
      const long limit = key_end(p, b, query_of(t) + rows_of(t) - 1) - key, n = limit < block_keys ? limit : block_keys;
      if (n <= 0 || kind_of(p, b, h, query_of(t), key) == BlockKind::none) continue;
      const Place at{b, h, query_of(t), rows_of(t), key, n};
      prefetch_next(p, y, at, next, key_limit, end, t, tiles);
      T *scores = x.scores.values, *outs = x.outs + t * x.out_size;
      const long first = seen_by_first<F>(p, at);
      // scores [n, lanes] = keys queries, with bias, function and masks
      key_products<F, lanes, kScoreFinish<F>>(x.keys, x.queries + t * x.query_size, p.width, first, n,
                                              score_factor<F>(p), scores);
      finish_scores<lanes>(p, at, scores, x.addend, x.rows);
      if (!finite) spread_nans(x.values, scores, lanes, n, p.value_width, outs);
      // scores = 2^(scores - top), and what earlier sums are scaled back by: factor [lanes]
      if (p.drop_below == 0) {
        softmax_step<F, lanes, F::kDots>(x.scores, n, x.top + t * lanes, x.sum + t * lanes, x.factor);
      } else {
        softmax_step<F, lanes, false>(x.scores, n, x.top + t * lanes, x.sum + t * lanes, x.factor);
        // dropout: scores *= 0 or keep; the sum above is of all
        dropout_factors<lanes>(p, at, x.addend);
        for (long i = 0; i < n * lanes; i += kWidth<T>)
          store_aligned(scores + i, load_aligned(scores + i) * load_aligned(x.addend + i));
        round_scores(x.scores, n);
        pair_up(x.scores.operand, n);
      }
      // outs [value_width, lanes] = outs * factor + values^T scores
      query_sums<F, lanes, Finish::rescale>(finite, x.values, x.scores.operand, p.value_width, first, n, x.factor,
                                            outs);
    }
  }
  for (long t = 0; t < tiles; ++t)
    end_tile(p, y, b, h, query_of(t), rows_of(t), x.outs + t * x.out_size, x.top + t * lanes, x.sum + t * lanes);
}

}  // namespace heed::kernels::HEED_LEVEL::attention

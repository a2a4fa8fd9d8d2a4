// Tiles of scores [keys of the block, lanes]; a lane is a query. Scores are multiplied by log2(e), so that weights are
// powers of two. Included only by attention kernels.
#pragma once
#include "../random/philox.hpp"
#include "masks.hpp"
#include "tile.hpp"

namespace heed::kernels::HEED_LEVEL::attention {

template <class T>
struct Exp2Constants;
// (2^r - 1) / r on |r| <= 1/2, highest power first: minimax for float (0.3 ulp), a Taylor series for double.
template <>
struct Exp2Constants<float> {
  static constexpr float poly[] = {1.5353361959569156e-4f, 1.3398875016719103e-3f, 9.61843691766262e-3f,
                                   5.5503323674201965e-2f, 2.4022647738456726e-1f, 6.931471824645996e-1f};
  static constexpr float lowest = -200.f, zero_below = -126.f;
};
template <>
struct Exp2Constants<double> {
  static constexpr double poly[] = {1.3691488853904124e-12, 2.5678435993488196e-11, 4.44553827187081e-10,
                                    7.054911620801121e-09,  1.0178086009239696e-07, 1.3215486790144305e-06,
                                    1.5252733804059838e-05, 1.5403530393381606e-4,  1.3333558146428441e-3,
                                    9.618129107628477e-3,   5.5504108664821576e-2,  2.402265069591007e-1,
                                    6.931471805599453e-1};
  static constexpr double lowest = -1200., zero_below = -1022.;
};

// 2^x for x that is not large. On every level: 0 for -inf, NaN for NaN, and 0 for results below the normal range.
template <class T>
inline Batch<T> exp2(Batch<T> x) {
  using K = Exp2Constants<T>;
#if defined(__AVX512DQ__)
  // x - r is the nearest integer; r is 0 for -inf
  if constexpr (sizeof(T) == 4) {
    const Batch<T> r = _mm512_reduce_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __mmask16 normal = _mm512_cmp_ps_mask(x, _mm512_set1_ps(K::zero_below), _CMP_NLT_UQ);  // also NaN
    return _mm512_maskz_scalef_ps(normal, fma(horner(K::poly, r), r, Batch<T>(T(1))), x - r);
  }
#endif
  const Batch<T> magic(ExpConstants<T>::magic);
  const Batch<T> y = quick_max(Batch<T>(K::lowest), x);  // keeps NaN
  const Batch<T> n = (y + magic) - magic, r = y - n;
  const Batch<T> p = fma(horner(K::poly, r), r, Batch<T>(T(1)));
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 8) {
    const __mmask8 normal = _mm512_cmp_pd_mask(y, _mm512_set1_pd(K::zero_below), _CMP_NLT_UQ);
    return _mm512_maskz_scalef_pd(normal, p, n);
  }
#endif
  return select(y < Batch<T>(K::zero_below), Batch<T>(T(0)), p * power_of_two(n));
}

// The place of a tile: queries [query, query + rows) of head (b, h) against keys [key, key + keys).
struct Place {
  long b, h, query, rows, key, keys;
};

// The factor of scores and bias before they are added. A function of scores takes them unscaled and returns scores
// times log2(e).
template <class T, class S>
inline double score_unit(const AttentionProblem<T, S>& p) {
  return p.rules.f.apply == nullptr ? kScoreUnit : 1;
}

// The logit of head h's sink times log2(e); -inf without sinks.
template <class T, class S>
inline T sink_of(const AttentionProblem<T, S>& p, long h) {
  return p.rules.sinks == nullptr ? -kInfinity<T> : p.rules.sinks[h] * T(kScoreUnit);
}

// The tile in the form that functions of scores take.
template <class T, class S>
inline ScoreTile tile_at(const AttentionProblem<T, S>& p, const Place& at, long lanes) {
  const long first = p.rules.positions == nullptr ? query_position(0, p.queries, p.keys) : p.rules.positions[at.b];
  const auto n = [](long x) { return static_cast<int32_t>(x); };
  return {n(at.b), n(at.h), n(at.query + first), n(at.rows), n(at.key), n(at.keys), n(lanes)};
}

// The kind of the block that contains the tile at (query, key), by the mask of blocks.
template <class T, class S>
inline BlockKind kind_of(const AttentionProblem<T, S>& p, long b, long h, long query, long key) {
  const ScoreRules<T>& r = p.rules;
  if (r.blocks == nullptr) return BlockKind::all;
  return r.blocks[b * r.block_batch + h * r.block_head + query / kBlockQueries * r.block_query + key / kBlockKeys];
}

// Whether the block of keys from `key` on is masked for all queries of the tile from `query` on, by the mask of blocks
// or by documents.
template <class T, class S>
inline bool is_hidden(const AttentionProblem<T, S>& p, long b, long h, long query, long key) {
  return kind_of(p, b, h, query, key) == BlockKind::none || key_begin(p, b, query) >= key + kBlockKeys;
}

// By the causal triangle, lane i of the tile sees the tile's keys up to i + reach; kNoBand: all keys.
template <class T, class S>
inline long reach_of(const AttentionProblem<T, S>& p, const Place& at) {
  return p.causal ? query_position(at.query, p.queries, p.keys) - at.key : kNoBand;
}

// Which pairs of a tile its products need: `rows` queries, in the first lanes, and `keys` keys. Lane i sees the keys up
// to i + reach.
struct VisiblePairs {
  long rows, keys, reach;
};

// How many of the tile's first keys are visible to any query in its first `lanes` lanes.
inline long seen_of_lanes(long reach, long lanes, long keys) {
  const long n = reach + lanes;
  return n < 0 ? 0 : n < keys ? n : keys;
}

// c[j, lane] = sum_d keys[j, d] columns[d, lane], times `factor` with Finish::scale. Used for scores and for the
// derivatives of weights.
template <class F, int kLanes, Finish kFinish>
inline void key_products(const Matrix<F>& keys, const ElementOf<F>* columns, long width, const VisiblePairs& pairs,
                         ValueOf<F> factor, ValueOf<F>* c, Fetch* fetch) {
  constexpr int w = kWidth<ValueOf<F>>;
  const long n = pairs.keys, reach = pairs.reach;
  // On the diagonal of a causal mask, each vector of lanes skips the keys that none of its queries sees, in whole
  // elements of a depth. This saves a quarter of the work of a tile of two vectors; the sums below save another eighth.
  const auto seen = [=](int lanes) {
    return seen_of_lanes(steps_of<F>(reach + lanes) * F::kDepth, 0, n);
  };
  for (int lane = 0; lane < kLanes; lane += 2 * w) {
    const long first = seen(lane + w), both = lane + 2 * w == kLanes ? n : seen(lane + 2 * w);
    Block<F> x{keys.rows, keys.row_stride, columns + lane, kLanes, c + lane, kLanes, width, nullptr, factor};
    x.fetch = fetch;
    product<Order::by_row, kFinish>(x, first, 2 * w);
    if (first == both) continue;
    x.a += first * keys.row_stride, x.b += w, x.c += first * kLanes + w;
    product<Order::by_row, kFinish>(x, both - first, w);
  }
}

// Rows [n, width] whose sum, weighted by a tile, is computed. If not all numbers are `finite`, terms of weight 0 are
// left out: the numbers of a masked key or query, NaN included, must not matter.
template <class F>
struct SummedRows {
  const Matrix<F>& x;
  long width;
  bool finite;
};

// c[lane, d] = sum_j weights[j, lane] keys[j, d]; d runs over whole vectors. If `begun`, the old c is added, with
// kAdd = rescale after a multiplication by factors[lane].
template <class F, int kLanes, Finish kAdd>
inline void query_sums(const SummedRows<F>& keys, const Matrix<F>& weights, const VisiblePairs& pairs, bool begun,
                       const ValueOf<F>* factors, ValueOf<F>* c, Fetch* fetch) {
  using T = ValueOf<F>;
  const long stride = keys.x.pair_stride, rows = pairs.rows, n = pairs.keys;
  if (!keys.finite) {
    for (long m = 0; m < rows * stride; ++m)
      c[m] = !begun ? T(0) : kAdd == Finish::rescale ? c[m] * factors[m / stride] : c[m];
    for (long j = 0; j < n; ++j)
      for (long i = 0; i < rows; ++i) {
        const T weight = weights.by_pair(j, i);
        if (weight == T(0)) continue;
        for (long d = 0; d < keys.width; ++d) c[i * stride + d] += keys.x.by_pair(j, d) * weight;
      }
    return;
  }
  Block<F> y{weights.pairs, kLanes, keys.x.pairs, stride, c, stride, n, factors};
  y.above = pairs.reach, y.fetch = fetch;
  if (begun)
    product<Order::by_column, kAdd>(y, rows, stride);
  else
    product<Order::by_column, Finish::set>(y, rows, stride);
}

// c[j, d] += sum_lane weights[j, lane] queries[lane, d]; d runs over whole vectors.
template <class F, int kLanes>
inline void key_sums(const SummedRows<F>& queries, const Matrix<F>& weights, const VisiblePairs& pairs, ValueOf<F>* c,
                     Fetch* fetch) {
  using T = ValueOf<F>;
  const long stride = queries.x.pair_stride, n = pairs.keys;
  if (!queries.finite) {
    for (long j = 0; j < n; ++j)
      for (long i = 0; i < kLanes; ++i) {
        const T weight = weights.by_row(j, i);
        if (weight == T(0)) continue;
        for (long d = 0; d < queries.width; ++d) c[j * stride + d] += queries.x.by_pair(i, d) * weight;
      }
    return;
  }
  Block<F> y{weights.rows, weights.row_stride, queries.x.pairs, stride, c, stride, kLanes};
  y.below = pairs.reach, y.fetch = fetch;
  product<Order::by_row, Finish::add>(y, n, stride);
}

// Bias and mask of the tile as one number to add to each score; -inf: masked. `rows` is scratch for [kLanes, keys + w).
template <int kLanes, class T, class S>
inline void load_addends(const AttentionProblem<T, S>& p, const Place& at, T* addend, T* rows) {
  constexpr int w = kWidth<T>;
  const long stride = (at.keys + w - 1) / w * w;
  const T unit = static_cast<T>(score_unit(p));
  for (long i = 0; i < at.rows; ++i) {
    T* row = rows + i * stride;
    const T* bias = pairs_of(p.bias, at.b, at.h, at.query + i, at.key);
    for (long j = 0; j < at.keys; ++j) row[j] = bias == nullptr ? T(0) : bias[j * p.bias.key] * unit;
    const uint8_t* mask = pairs_of(p.mask, at.b, at.h, at.query + i, at.key);
    for (long j = 0; mask != nullptr && j < at.keys; ++j) row[j] = mask[j * p.mask.key] != 0 ? row[j] : -kInfinity<T>;
  }
  transpose<T>(rows, stride, at.rows, at.keys, long{kLanes},
               [&](long j, long i, Batch<T> lanes, int) { store_aligned(addend + j * kLanes + i, lanes); });
}

// Masks the keys before the document of each lane's query.
template <int kLanes, class T, class S>
[[gnu::noinline]] void mask_documents(const AttentionProblem<T, S>& p, const Place& at, T* s) {
  const int32_t* documents = p.documents + at.b * p.queries + at.query;
  // begin [lanes]: the first key of the tile that the lane sees; the last lane sees the fewest
  const auto begin_of = [&](long i) {
    const long begin = documents[i] - at.key;
    return begin < 0 ? 0 : begin < at.keys ? begin : at.keys;
  };
  const long end = begin_of(at.rows - 1);
  if (end == 0) return;
  alignas(64) T begin[kLanes];
  for (long i = 0; i < kLanes; ++i) begin[i] = i < at.rows ? static_cast<T>(begin_of(i)) : T(0);
  for (long j = 0; j < end; ++j)
    for (long i = 0; i < kLanes; i += kWidth<T>) {
      T* to = s + j * kLanes + i;
      const Mask<T> unseen = Batch<T>(static_cast<T>(j)) < load_aligned(begin + i);
      store_aligned(to, select(unseen, minus_infinity<T>(), load_aligned(to)));
    }
}

// Turns the products of a tile [keys, lanes] into scores: adds the bias, applies the function and the masks. Scores of
// masked pairs become -inf, whatever they were. For backward, x and slope receive the function's inputs and derivatives
// if they are not null; both are [keys, lanes].
template <int kLanes, class T, class S>
[[gnu::noinline]] void finish_scores(const AttentionProblem<T, S>& p, const Place& at, T* s, T* addend, T* rows,
                                     T* x = nullptr, T* slope = nullptr) {
  constexpr int w = kWidth<T>;
  // bias and mask of pairs: s += addend, or -inf
  const bool pairs = p.bias.data != nullptr || p.mask.data != nullptr;
  if (pairs) {
    load_addends<kLanes>(p, at, addend, rows);
    for (long n = 0; n < at.keys * kLanes; n += w) {
      const Batch<T> a = load_aligned(addend + n);
      store_aligned(s + n, select(a == minus_infinity<T>(), a, load_aligned(s + n) + a));
    }
  }
  // the function of scores, which may return anything for -inf
  if (p.rules.f.apply != nullptr) {
    for (long n = 0; x != nullptr && n < at.keys * kLanes; n += w) store_aligned(x + n, load_aligned(s + n));
    p.rules.f.apply(*p.rules.context, tile_at(p, at, kLanes), s, slope);
    for (long n = 0; pairs && n < at.keys * kLanes; n += w) {
      const Batch<T> a = load_aligned(addend + n);
      store_aligned(s + n, select(a == minus_infinity<T>(), a, load_aligned(s + n)));
    }
  }
  if (kind_of(p, at.b, at.h, at.query, at.key) == BlockKind::part)
    p.rules.mask(p.rules.mask_function, tile_at(p, at, kLanes), s);
  // masked keys: whole rows
  if (p.key_mask != nullptr) {
    const uint8_t* key_mask = p.key_mask + at.b * p.keys + at.key;
    for (long j = 0; j < at.keys; ++j) {
      if (key_mask[j] != 0) continue;
      for (long i = 0; i < kLanes; i += w) store_aligned(s + j * kLanes + i, minus_infinity<T>());
    }
  }
  if (p.documents != nullptr) mask_documents<kLanes>(p, at, s);
  // the causal triangle: lane i sees the block's keys up to i + reach
  const long reach = reach_of(p, at);
  if (reach >= at.keys - 1) return;
  const Batch<T> lane = lane_numbers<T>();
  for (long j = reach < 0 ? 0 : reach + 1; j < at.keys; ++j)
    for (long i = 0; i < kLanes; i += w) {
      if (i >= j - reach) break;
      const Mask<T> unseen = lane < Batch<T>(static_cast<T>(j - reach - i));
      T* to = s + j * kLanes + i;
      store_aligned(to, select(unseen, minus_infinity<T>(), load_aligned(to)));
    }
}

// Dropout factors, 0 or `keep`, from random words for each lane's query and four keys at a time.
template <int kLanes, class T, class S>
inline void dropout_factors(const AttentionProblem<T, S>& p, const Place& at, T* factor) {
  const uint64_t blocks = static_cast<uint64_t>(p.keys + 3) / 4;
  for (long j = 0; j < at.keys; j += 4) {
    alignas(64) uint32_t c[4][kLanes];
    const uint64_t first = dropout_counter(p, at.b, at.h, at.query) + static_cast<uint64_t>((at.key + j) / 4);
    philox_words(
        p.seed, p.stream, [=](int i) { return first + static_cast<uint64_t>(i) * blocks; }, c);
    for (long n = 0; n < 4 && j + n < at.keys; ++n)
      for (int i = 0; i < kLanes; ++i) factor[(j + n) * kLanes + i] = c[n][i] < p.drop_below ? T(0) : p.keep;
  }
}

// One step of the online softmax: s [keys, lanes] becomes 2^(s - m), where m is the new maximum (`top`, [lanes]).
// Earlier sums must be multiplied by `scale_back` [lanes]. kPairs: the results are stored to x.operand.pairs only.
template <class F, int kLanes, bool kPairs>
[[gnu::noinline]] void softmax_step(const ScoreTiles<F>& x, long keys, ValueOf<F>* top, ValueOf<F>* sum,
                                    ValueOf<F>* scale_back) {
  using T = ValueOf<F>;
  constexpr int w = kWidth<T>, v = kLanes / w;
  T* s = x.values;
  Batch<T> high[v], total[v];
  // m = max(m, max_j s_j), lane by lane
  unroll<v>([&](auto i) { high[i] = load_aligned(top + i * w); });
  for (long j = 0; j < keys; ++j)
    unroll<v>([&](auto i) { high[i] = quick_max(load_aligned(s + j * kLanes + i * w), high[i]); });
  // scale_back = 2^(old m - m); a lane without a key so far uses m = 0, since -inf - -inf is NaN
  unroll<v>([&](auto i) {
    const Batch<T> before = load_aligned(top + i * w);
    store_aligned(top + i * w, high[i]);
    high[i] = select(high[i] == minus_infinity<T>(), Batch<T>(T(0)), high[i]);
    store_aligned(scale_back + i * w, exp2(before - high[i]));
    total[i] = Batch<T>(T(0));
  });
  // s = 2^(s - m)
  if constexpr (kPairs) {
    using Row = RoundedRow<F>;
    const Interleave order;
    const auto row = [&](long j) {
      Batch<T> e[v];
      unroll<v>([&](auto i) {
        e[i] = exp2(load_aligned(s + j * kLanes + i * w) - high[i]);
        total[i] = total[i] + e[i];
      });
      return Row(e[0], e[1]);
    };
    for (long j = 0; j < keys; j += 2) {
      const Row a = row(j), b = j + 1 < keys ? row(j + 1) : Row();
      Row::put_pairs(order, x, j, a, b);
    }
  } else {
    for (long j = 0; j < keys; ++j)
      unroll<v>([&](auto i) {
        const Batch<T> e = exp2(load_aligned(s + j * kLanes + i * w) - high[i]);
        store_aligned(s + j * kLanes + i * w, e);
        total[i] = total[i] + e;
      });
  }
  // sum = sum * scale_back + sum_j s
  unroll<v>([&](auto i) {
    store_aligned(sum + i * w, fma(load_aligned(sum + i * w), load_aligned(scale_back + i * w), total[i]));
  });
}

}  // namespace heed::kernels::HEED_LEVEL::attention

// One query per head against a long cache of keys and values, as in generation. Every key and value is read once, so
// lanes run along the width. The cache is cut into chunks, whose partial results are joined in order. Included only by
// attention kernels.
#pragma once
#include "pack.hpp"

namespace heed::kernels::HEED_LEVEL::attention {

inline constexpr long kDecodeKeys = 512;  // per chunk

// Elements of a chunk's result for one head: maximum and sum in the first 16, then value_width sums in whole vectors.
template <class T, class S>
int64_t partial_size(const AttentionProblem<T, S>& p) {
  return whole_vectors<T>(p.value_width) + 16;
}

// Rows of keys or values in the cache, from row `first` on.
template <class S>
struct CacheRows {
  const S* first;
  long stride, width;
  const S* operator[](long j) const { return first + j * stride; }

  // Prefetches row j into L2, so that memory is read while scores become weights.
  void call(long j) const {
    for (long c = 0; c < width; c += 64 / static_cast<long>(sizeof(S))) __builtin_prefetch((*this)[j] + c, 0, 2);
  }
};

// s[j] = factor * q . k_j for n keys. Also prefetches the values of these keys.
template <class T, class S>
inline void dots(const S* q, const CacheRows<S>& keys, const CacheRows<S>& values, long n, T factor, T* s) {
  for (long j = 0; j < n; j += 4) {
    const long last = n - j < 4 ? n - j - 1 : 3;  // keys beyond the end are replaced by the last
    const S* row[4];
    unroll<4>([&](auto i) { row[i] = keys[j + (i < last ? i : last)]; });
    for (long i = 0; i <= last; ++i) values.call(j + i);
    lane_dots<4>(q, row, keys.width, s + j);
    for (int i = 0; i < 4; ++i) s[j + i] *= factor;
  }
}

// o = o * factor + sum_j s[j] v_j. Masked keys, with the weight -0, are skipped. The sums of up to 8 vectors stay in
// registers. Also prefetches the rows of `next`, if any.
template <class T, int V, class S>
inline void weigh_columns(const T* s, const CacheRows<S>& values, const CacheRows<S>& next, long n, int last, T factor,
                          T* o) {
  constexpr int w = kWidth<T>;
  Batch<T> sum[V];
  unroll<V>([&](auto v) { sum[v] = load_aligned(o + v * w) * Batch<T>(factor); });
  for (long j = 0; j < n; ++j) {
    if (next.first != nullptr) next.call(j);
    if (__builtin_signbit(s[j])) continue;
    const Batch<T> weight(s[j]);
    unroll<V>([&](auto v) {
      const S* x = values[j] + v * w;
      sum[v] = fma(weight, v < V - 1 || last == w ? load_as<T>(x) : load_as_part<T>(x, last), sum[v]);
    });
  }
  unroll<V>([&](auto v) { store_aligned(o + v * w, sum[v]); });
}

template <class T, int V = 8, class S>
inline void weigh(const T* s, CacheRows<S> values, CacheRows<S> next, long n, T factor, T* o) {
  constexpr int w = kWidth<T>;
  for (; values.width > (V - 1) * w; values.width -= V * w, values.first += V * w, o += V * w, next.first = nullptr)
    weigh_columns<T, V>(s, values, next, n, values.width >= V * w ? w : static_cast<int>(values.width - (V - 1) * w),
                        factor, o);
  if constexpr (V > 1) {
    if (values.width > 0) weigh<T, V / 2>(s, values, next, n, factor, o);
  }
}

// Turns s [n], the products of the query with keys [key, key + n), into scores: finish_scores for one row.
template <class T, class S>
inline void finish_row(const AttentionProblem<T, S>& p, long b, long h, long key, long n, T* s) {
  const T unit = static_cast<T>(score_unit(p));
  const T* bias = pairs_of(p.bias, b, h, 0, key);
  const uint8_t* mask = pairs_of(p.mask, b, h, 0, key);
  for (long j = 0; bias != nullptr && j < n; ++j) s[j] += unit * bias[j * p.bias.key];
  const ScoreTile tile = tile_at(p, Place{b, h, 0, 1, key, n}, 1);
  if (p.rules.f.apply != nullptr) p.rules.f.apply(*p.rules.context, tile, s, nullptr);
  if (kind_of(p, b, h, 0, key) == BlockKind::part) p.rules.mask(p.rules.mask_function, tile, s);
  for (long j = 0; j < n; ++j)
    if ((bias != nullptr && bias[j * p.bias.key] == -kInfinity<T>) || (mask != nullptr && mask[j * p.mask.key] == 0) ||
        (p.key_mask != nullptr && p.key_mask[b * p.keys + key + j] == 0))
      s[j] = -kInfinity<T>;
}

// Chunk `chunk` of the cache of (b, kv_head), for all heads that share it. partial is [shared heads, partial_size].
template <class T, class S>
void decode(const AttentionProblem<T, S>& p, int64_t b, int64_t kv_head, int64_t chunk, T* partial) {
  const long shared = p.heads / p.kv_heads, size = partial_size(p), limit = key_end(p, b, 0);
  const long begin = chunk * kDecodeKeys, end = limit < begin + kDecodeKeys ? limit : begin + kDecodeKeys;
  // per head: maximum -inf, sum 0, and value_width sums of 0
  for (long r = 0; r < shared; ++r) {
    partial[r * size] = -kInfinity<T>;
    partial[r * size + 1] = T(0);
    clear(partial + r * size + 16, p.value_width);
  }
  alignas(64) T s[kKeys + 4];
  for (long key = begin; key < end; key += kKeys) {
    const long n = end - key < kKeys ? end - key : kKeys;
    for (long r = 0; r < shared; ++r) {
      const long h = kv_head * shared + r;
      if (kind_of(p, b, h, 0, key) == BlockKind::none) continue;
      T *state = partial + r * size, top = state[0], total(0);
      const CacheRows<S> keys = {row_of(p.k, b, kv_head, key), p.k.row, p.width},
                         values = {row_of(p.v, b, kv_head, key), p.v.row, p.value_width};
      // s [n] = scale q . k_j, with bias, function and masks
      dots<T>(row_of(p.q, b, h, 0), keys, values, n, static_cast<T>(p.scale * score_unit(p)), s);
      finish_row(p, b, h, key, n, s);
      // s = 2^(s - new maximum), or -0 if masked; the sums so far are multiplied by `factor`
      for (long j = 0; j < n; ++j) top = s[j] > top ? s[j] : top;
      const T base = top == -kInfinity<T> ? T(0) : top;
      total = lane_sum<T>(n, [&](int64_t j, auto at) {
        const Batch<T> x = at.load(s + j, -kInfinity<T>), e = exp2(x - Batch<T>(base));
        at.store(s + j, select(x == minus_infinity<T>(), Batch<T>(-T(0)), e));
        return e;
      });
      const T factor = first_lane(exp2(Batch<T>(state[0] - base)));
      state[0] = top;
      state[1] = state[1] * factor + total;
      // Prefetches the next keys while values are read: those of this head, or the first ones of the next head.
      CacheRows<S> next = {nullptr, p.k.row, p.width};
      if (key + kKeys < end)
        next.first = row_of(p.k, b, kv_head, key + kKeys);
      else if (kv_head + 1 < p.kv_heads)
        next.first = row_of(p.k, b, kv_head + 1, begin);
      // sums [value_width] = sums * factor + sum_j s_j v_j
      weigh<T>(s, values, next, n, factor, state + 16);
    }
  }
}

// The row of head (b, h) from its chunks: partial [chunks], `stride` apart.
template <class T, class S>
void join(const AttentionProblem<T, S>& p, const AttentionOutput<T, S>& y, int64_t b, int64_t h, int64_t chunks,
          const T* partial, int64_t stride) {
  constexpr int w = kWidth<T>;
  // the maximum over all chunks and the sink, and the sum of all weights relative to it
  const T sink = sink_of(p, h);
  T top = sink, total(0);
  for (long c = 0; c < chunks; ++c) top = partial[c * stride] > top ? partial[c * stride] : top;
  const Batch<T> base(top == -kInfinity<T> ? T(0) : top);
  const auto factor = [&](long c) { return exp2(Batch<T>(partial[c * stride]) - base); };
  for (long c = 0; c < chunks; ++c) total += partial[c * stride + 1] * first_lane(factor(c));
  if (sink != -kInfinity<T>) total += first_lane(exp2(Batch<T>(sink) - base));
  const Batch<T> inverse(total == T(0) ? T(0) : T(1) / total);
  for (long d = 0; d < p.value_width; d += w) {
    Batch<T> sum(T(0));
    for (long c = 0; c < chunks; ++c) sum = fma(load_aligned(partial + c * stride + 16 + d), factor(c), sum);
    put_lanes(row_of(y.out, b, h, 0) + d, sum * inverse, p.value_width - d);
  }
}

}  // namespace heed::kernels::HEED_LEVEL::attention

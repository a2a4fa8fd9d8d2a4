// Rows of scores, one query each, whose lanes are keys. Included only by additive_attention.kernel.cpp.
#pragma once
#include "../attention/masks.hpp"
#include "../attention/rows.hpp"
#include "../random/philox.hpp"
#include "additive_attention.hpp"

namespace heed::kernels::HEED_LEVEL::additive {

inline constexpr long kRows = 4;   // queries that share each loaded key
inline constexpr long kKeys = 16;  // keys whose tanh backward holds: whole vectors, and whole blocks of Philox

// The place of a tile: queries from `query` on of head (b, h) against keys [key, key + keys).
struct Tile {
  long b, h, query, key, keys;
};

// scores[r * stride + j] = u . tanh(q_i + k_j) for R queries. If kKeep, tanh is stored to kept[(r * kKeys + j) * size],
// where size is the width in whole vectors.
template <class T, int R, bool kKeep>
inline void score_rows(const AdditiveProblem<T>& p, const Tile& at, T* scores, long stride, T* kept) {
  const long kv_head = at.h / (p.heads / p.kv_heads), size = whole_vectors<T>(p.width);
  const T *q = row_of(p.q, at.b, at.h, at.query), *u = p.u + at.h * p.width;
  for (long j = 0; j < at.keys; ++j) {
    const T* k = row_of(p.k, at.b, kv_head, at.key + j);
    T sums[R];
    sum_lanes(
        p.width, sums, [&](int64_t c, auto lanes, Batch<T>(&sum)[R]) __attribute__((always_inline)) {
          const Batch<T> key_part = lanes.load(k + c), factor = lanes.load(u + c);
          unroll<R>([&](auto r) {
            const Batch<T> t = tanh(lanes.load(q + r * p.q.row + c) + key_part);
            if constexpr (kKeep) store_aligned(kept + (r * kKeys + j) * size + c, t);
            sum[r] = fma(factor, t, sum[r]);
          });
        });
    for (int r = 0; r < R; ++r) scores[r * stride + j] = sums[r];
  }
}

// Adds the bias to the scores of row r of the tile. Scores of masked keys, and those after the last key up to a whole
// vector, become -inf, whatever they were.
template <class T>
inline void mask_row(const AttentionProblem<T>& p, const Tile& at, long r, T* scores) {
  const long b = at.b, h = at.h, i = at.query + r, key = at.key, keys = at.keys;
  const T* bias = pairs_of(p.bias, b, h, i, key);
  for (long j = 0; bias != nullptr && j < keys; ++j) scores[j] += bias[j * p.bias.key];
  const uint8_t* mask = pairs_of(p.mask, b, h, i, key);
  for (long j = 0; mask != nullptr && j < keys; ++j) scores[j] = mask[j * p.mask.key] != 0 ? scores[j] : -kInfinity<T>;
  if (p.key_mask != nullptr) {
    const uint8_t* key_mask = p.key_mask + b * p.keys + key;
    for (long j = 0; j < keys; ++j) scores[j] = key_mask[j] != 0 ? scores[j] : -kInfinity<T>;
  }
  const long seen = key_end(p, b, i) - key;
  for (long j = seen < 0 ? 0 : seen < keys ? seen : keys; j < whole_vectors<T>(keys); ++j) scores[j] = -kInfinity<T>;
}

// Dropout factors, 0 or `keep`, from random words for row r of the tile. The tile's first key is a multiple of 4, and
// `factor` has room for whole blocks of kKeys keys. The counters are those of softmax attention.
template <class T>
inline void dropout_row(const AttentionProblem<T>& p, const Tile& at, long r, T* factor) {
  constexpr int n = kKeys / 4;
  const uint64_t first = dropout_counter(p, at.b, at.h, at.query + r);
  for (long j = 0; j < at.keys; j += kKeys) {
    alignas(64) uint32_t c[4][n];
    philox_words(
        p.seed, p.stream, [&](int l) { return first + static_cast<uint64_t>((at.key + j) / 4 + l); }, c);
    for (int l = 0; l < n; ++l)
      for (int word = 0; word < 4; ++word) factor[j + 4 * l + word] = c[word][l] < p.drop_below ? T(0) : p.keep;
  }
}

}  // namespace heed::kernels::HEED_LEVEL::additive

// Backward: a few queries are processed against all keys, some keys at a time, whose tanh stays in cache. Included only
// by additive_attention.kernel.cpp.
#pragma once
#include "rows.hpp"

namespace heed::kernels::HEED_LEVEL::additive {

template <class T>
struct BackwardScratch {
  T* tanhs;                  // [kRows, kKeys, size]
  T *weights, *ds, *factor;  // [kRows, kKeys]: m p; ds; m
  T *dq, *du;                // [kRows, size], [size]: of these queries
  long size, value_size;     // width and value_width in whole vectors

  BackwardScratch(const AttentionProblem<T>& p, Pieces<T>& from) {
    size = whole_vectors<T>(p.width);
    value_size = whole_vectors<T>(p.value_width);
    weights = from.take(kRows * kKeys);
    ds = from.take(kRows * kKeys);
    factor = from.take(kKeys);
    dq = from.take(kRows * size);
    du = from.take(size);
    tanhs = from.take(kRows * kKeys * size);
  }
};

// The sums of a group, to which each tile adds.
template <class T>
struct GroupSums {
  T* dkeys;  // [keys, size + value_size]: dk and dv
  T* du;     // [size]
};

// For row r of the tile: turns the scores in `weights` into m p, and sets ds. `delta` is do . o.
template <class T>
void weights_and_ds(const AttentionProblem<T>& p, const AdditiveGradients<T>& d, const Tile& at, long r, T delta,
                    const BackwardScratch<T>& to) {
  constexpr int w = kWidth<T>;
  const long i = at.query + r, row = (at.b * p.heads + at.h) * p.queries + i;
  const long kv_head = at.h / (p.heads / p.kv_heads);
  T *weights = to.weights + r * kKeys, *ds = to.ds + r * kKeys;
  mask_row(p, at, r, weights);
  const Batch<T> minus_inf = minus_infinity<T>(), zero(T(0)), lse(d.lse[row]);
  for (long j = 0; j < at.keys; j += w) {
    const Batch<T> s = load_aligned(weights + j);
    store_aligned(weights + j, select(s == minus_inf, zero, exp(s - lse)));
  }
  if (p.drop_below != 0) dropout_row(p, at, r, to.factor);
  const T* dout = row_of(d.dout, at.b, at.h, i);
  for (long j = 0; j < at.keys; ++j) {
    const T weight = weights[j], m = p.drop_below != 0 ? to.factor[j] : T(1);
    ds[j] = T(0);
    if (weight == T(0)) continue;  // the value may be anything
    const T dweight = m == T(0) ? T(0) : m * lane_dot(dout, row_of(p.v, at.b, kv_head, at.key + j), p.value_width);
    ds[j] = weight * (dweight - delta);
    weights[j] = weight * m;
  }
  if (d.dbias != nullptr)
    for (long j = 0; j < at.keys; ++j) d.dbias[row * p.keys + at.key + j] = ds[j];
}

// Adds the share of row r to dkeys [keys, size + value_size], and to dq and du of `to`. Pairs of weight 0 are left out,
// since their tanh may be anything.
template <class T>
void add_row(const AdditiveProblem<T>& p, const AdditiveGradients<T>& d, const Tile& at, long r, T* dkeys,
             const BackwardScratch<T>& to) {
  constexpr int w = kWidth<T>;
  const T *u = p.u + at.h * p.width, *dout = row_of(d.dout, at.b, at.h, at.query + r);
  T* dq = to.dq + r * to.size;
  const Batch<T> one(T(1));
  for (long j = 0; j < at.keys; ++j) {
    T *dkey = dkeys + (at.key + j) * (to.size + to.value_size), *dvalue = dkey + to.size;
    if (const Batch<T> weight(to.weights[r * kKeys + j]); to.weights[r * kKeys + j] != T(0))
      for (long c = 0; c < p.value_width; c += w)
        store_aligned(dvalue + c, fma(weight, get_lanes(dout + c, p.value_width - c), load_aligned(dvalue + c)));
    if (to.ds[r * kKeys + j] == T(0)) continue;
    const Batch<T> ds(to.ds[r * kKeys + j]);
    const T* tanhs = to.tanhs + (r * kKeys + j) * to.size;
    for (long c = 0; c < p.width; c += w) {
      const Batch<T> t = load_aligned(tanhs + c), e = ds * get_lanes(u + c, p.width - c) * fnma(t, t, one);
      store_aligned(dq + c, load_aligned(dq + c) + e);
      store_aligned(dkey + c, load_aligned(dkey + c) + e);
      store_aligned(to.du + c, fma(ds, t, load_aligned(to.du + c)));
    }
  }
}

template <class T, int R>
void backward_rows(const AdditiveProblem<T>& p, const AdditiveGradients<T>& d, long b, long h, long i,
                   GroupSums<T> sums, const BackwardScratch<T>& to) {
  T delta[R];
  for (long r = 0; r < R; ++r)
    delta[r] = lane_dot(row_of(d.dout, b, h, i + r), row_of(d.out, b, h, i + r), p.value_width);
  clear(to.dq, R * to.size);
  clear(to.du, to.size);
  const long end = key_end(p, b, i + R - 1);
  for (long key = 0; key < end; key += kKeys) {
    const Tile at{b, h, i, key, end - key < kKeys ? end - key : kKeys};
    score_rows<T, R, true>(p, at, to.weights, kKeys, to.tanhs);
    for (long r = 0; r < R; ++r) {
      weights_and_ds(p, d, at, r, delta[r], to);
      add_row(p, d, at, r, sums.dkeys, to);
    }
  }
  if (d.dq.data != nullptr)
    for (long r = 0; r < R; ++r) put_row(row_of(d.dq, b, h, i + r), to.dq + r * to.size, p.width, T(1), d.add_dq);
  for (long c = 0; c < to.size; c += kWidth<T>)
    store_aligned(sums.du + c, load_aligned(sums.du + c) + load_aligned(to.du + c));
}

template <class T>
int64_t key_size(const AttentionProblem<T>& p) {
  return whole_vectors<T>(p.width) + whole_vectors<T>(p.value_width);
}
template <class T>
int64_t u_size(const AttentionProblem<T>& p) {
  return whole_vectors<T>(p.width);
}

template <class T>
void backward(const AdditiveProblem<T>& p, const AdditiveGradients<T>& d, int64_t b, int64_t kv_head, int64_t group,
              T* scratch) {
  Pieces<T> pieces{scratch};
  const BackwardScratch<T> to(p, pieces);
  T* dkeys = d.partial_keys + ((b * p.kv_heads + kv_head) * d.groups + group) * p.keys * key_size(p);
  clear(dkeys, p.keys * key_size(p));
  const long shared = p.heads / p.kv_heads, begin = group * d.group_rows;
  const long end = begin + d.group_rows < p.queries ? begin + d.group_rows : p.queries;
  for (long h = kv_head * shared; h < (kv_head + 1) * shared; ++h) {
    T* du = d.partial_u + ((b * p.heads + h) * d.groups + group) * u_size(p);
    clear(du, u_size(p));
    long i = begin;
    for (; i + kRows <= end; i += kRows) backward_rows<T, kRows>(p, d, b, h, i, {dkeys, du}, to);
    for (; i < end; ++i) backward_rows<T, 1>(p, d, b, h, i, {dkeys, du}, to);
  }
}

template <class T>
void combine_keys(const AdditiveProblem<T>& p, const AdditiveGradients<T>& d, int64_t b, int64_t kv_head, int64_t begin,
                  int64_t end) {
  const long size = key_size(p), group = p.keys * size;
  T* all = d.partial_keys + (b * p.kv_heads + kv_head) * d.groups * group;
  for (long j = begin; j < end; ++j) {
    T* sum = all + j * size;
    for (long g = 1; g < d.groups; ++g)
      for (long c = 0; c < size; c += kWidth<T>)
        store_aligned(sum + c, load_aligned(sum + c) + load_aligned(sum + g * group + c));
    if (d.dk.data != nullptr) put_row(row_of(d.dk, b, kv_head, j), sum, p.width, T(1), d.add_dk);
    if (d.dv.data != nullptr)
      put_row(row_of(d.dv, b, kv_head, j), sum + whole_vectors<T>(p.width), p.value_width, T(1), d.add_dv);
  }
}

template <class T>
void combine_u(const AdditiveProblem<T>& p, const AdditiveGradients<T>& d, int64_t h) {
  const long size = u_size(p);
  for (long c = 0; c < p.width; c += kWidth<T>) {
    Batch<T> sum(T(0));
    for (long b = 0; b < p.batch; ++b)
      for (long g = 0; g < d.groups; ++g)
        sum = sum + load_aligned(d.partial_u + ((b * p.heads + h) * d.groups + g) * size + c);
    put_lanes(d.du + h * p.width + c, sum, p.width - c);
  }
}

}  // namespace heed::kernels::HEED_LEVEL::additive

// From the tensors of a checked call to what attention kernels take: for the sources core/*attention.cpp alone.
#pragma once
#include <algorithm>
#include <cmath>
#include <heed/core/attention.hpp>
#include <heed/core/random.hpp>
#include <heed/core/kernels/attention.hpp>
#include <type_traits>

namespace heed::detail {

// Null where x is undefined.
template <class T>
T* pointer(const Tensor& x) {
  return x.defined() ? x.ptr<std::remove_const_t<T>>() : nullptr;
}

// x is [B, H, rows, width], its last axis of stride 1, or undefined.
template <class T>
kernels::HeadRows<T> rows_of(const Tensor& x) {
  if (!x.defined()) return {nullptr, 0, 0, 0};
  return {pointer<T>(x), x.strides()[0], x.strides()[1], x.strides()[2]};
}

// x broadcasts to `shape`, [B, H, T, S], or is undefined.
template <class T>
kernels::ScoreGrid<const T> grid_of(const Tensor& x, const Shape& shape) {
  if (!x.defined()) return {nullptr, 0, 0, 0, 0};
  const Tensor y = x.expand(shape);
  const Strides& s = y.strides();
  return {static_cast<const T*>(y.raw()), s[0], s[1], s[2], s[3]};
}

// Sizes, rows and dead keys: what the problems of all mechanisms have. Without v (weights alone) the values have no
// width.
template <class T, class Problem, class Call>
void set_rows(Problem& p, const Call& x) {
  p.batch = x.q.dim(0), p.heads = x.q.dim(1), p.kv_heads = x.k.dim(1);
  p.queries = x.q.dim(2), p.keys = x.k.dim(2), p.width = x.q.dim(3), p.value_width = x.v.defined() ? x.v.dim(3) : 0;
  p.q = rows_of<const T>(x.q), p.k = rows_of<const T>(x.k), p.v = rows_of<const T>(x.v);
  p.lengths = pointer<const std::int32_t>(x.lengths);
  p.alive = pointer<const std::uint8_t>(x.key_mask);
}

// And scale, mask, bias and dropout, where each pair has a score.
template <class T, class Problem>
void set_pairs(Problem& p, const AttentionCall& x) {
  set_rows<T>(p, x);
  p.scale = static_cast<T>(x.scale);
  const Shape grid = {p.batch, p.heads, p.queries, p.keys};
  p.mask = grid_of<std::uint8_t>(x.mask, grid);
  p.bias = grid_of<T>(x.bias, grid);
  p.seed = x.seed, p.stream = x.stream, p.position = x.position;
  p.drop_below = static_cast<std::uint32_t>(std::min(std::floor(x.dropout * 0x1p32), 0x1p32 - 1));
  p.keep = static_cast<T>(dropout_scale(x.dropout));
}

}  // namespace heed::detail

// Sums and maxima over rows of any width. Included only by *.kernel.cpp.
#pragma once
#include "simd.hpp"
//
#include "sweep.hpp"

namespace heed::kernels::HEED_LEVEL {

// Adds up sums of blocks pairwise, in the order of their tree.
template <class T>
class PairwiseSum {
 public:
  void add(Batch<T> block) {
    int bit = 0;
    for (; blocks_ >> bit & 1; ++bit) block = level_[bit] + block;
    level_[bit] = block;
    ++blocks_;
  }
  // Of all blocks and of what is left behind the last.
  Batch<T> total(Batch<T> rest) const {
    for (int bit = 0; blocks_ >> bit != 0; ++bit)
      if (blocks_ >> bit & 1) rest = level_[bit] + rest;
    return rest;
  }

 private:
  Batch<T> level_[44];  // level_[b] holds the sum of 2^b blocks where bit b of blocks_ is set
  int64_t blocks_ = 0;
};

// The sum of f(i, at) over [0, n). Blocks of 32 vectors are summed by four chains of eight and combined pairwise, so
// that a value goes through at most 10 + log2(n / 32 width) + log2(width) additions: that many half units in the last
// place of the sum of absolute values bound the error.
template <class T, class F>
inline T tree_sum(int64_t n, F f) {
  constexpr int64_t w = kWidth<T>, block = 32 * w;
  PairwiseSum<T> sum;
  int64_t i = 0;
  while (i + block <= n) {
    Batch<T> a = f(i, Whole{}), b = f(i + w, Whole{}), c = f(i + 2 * w, Whole{}), d = f(i + 3 * w, Whole{});
    for (const int64_t end = i + block; (i += 4 * w) < end;) {
      a = a + f(i, Whole{});
      b = b + f(i + w, Whole{});
      c = c + f(i + 2 * w, Whole{});
      d = d + f(i + 3 * w, Whole{});
    }
    sum.add((a + b) + (c + d));
  }
  const Batch<T> zero(T(0));
  Batch<T> a = zero, b = zero, c = zero, d = zero;
  for (; i + 4 * w <= n; i += 4 * w) {
    a = a + f(i, Whole{});
    b = b + f(i + w, Whole{});
    c = c + f(i + 2 * w, Whole{});
    d = d + f(i + 3 * w, Whole{});
  }
  if (i + w <= n) a = a + f(i, Whole{}), i += w;
  if (i + w <= n) b = b + f(i, Whole{}), i += w;
  if (i + w <= n) c = c + f(i, Whole{}), i += w;
  if (i < n) d = d + Part{static_cast<int>(n - i)}.keep(f(i, Part{static_cast<int>(n - i)}));
  return reduce_add(sum.total((a + b) + (c + d)));
}

// The combination by op of f(i, at) over [0, n), n > 0; op(v, v) must be v.
template <class T, class F, class Op>
inline Batch<T> vector_extremum(int64_t n, F f, Op op) {
  constexpr int64_t w = kWidth<T>;
  if (n < w) {
    const Part part{static_cast<int>(n)};
    const Batch<T> v = f(0, part);
    return part.keep(v, Batch<T>(first_lane(v)));
  }
  Batch<T> a = f(0, Whole{}), b = a, c = a, d = a;
  int64_t i = w;
  for (; i + 4 * w <= n; i += 4 * w) {
    a = op(a, f(i, Whole{}));
    b = op(b, f(i + w, Whole{}));
    c = op(c, f(i + 2 * w, Whole{}));
    d = op(d, f(i + 3 * w, Whole{}));
  }
  for (; i + w <= n; i += w) a = op(a, f(i, Whole{}));
  if (i < n) b = op(b, f(n - w, Whole{}));  // overlaps what was taken already
  return op(op(a, b), op(c, d));
}
template <class T, class F>
inline T row_max(int64_t n, F f) {
  return reduce_max(vector_extremum<T>(n, f, [](Batch<T> x, Batch<T> y) { return max(x, y); }));
}
template <class T, class F>
inline T row_min(int64_t n, F f) {
  return reduce_min(vector_extremum<T>(n, f, [](Batch<T> x, Batch<T> y) { return min(x, y); }));
}

}  // namespace heed::kernels::HEED_LEVEL

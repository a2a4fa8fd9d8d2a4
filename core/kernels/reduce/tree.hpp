// Sums and maxima over rows of any width. Included only by *.kernel.cpp.
#pragma once
#include "../simd/lane_sums.hpp"

namespace heed::kernels::HEED_LEVEL {

// Adds the sums of blocks pairwise, as a tree in block order. A sum has P vectors.
template <class T, int P>
class PairwiseSum {
 public:
  void add(const Batch<T> (&block)[P]) {
    Batch<T> sum[P];
    unroll<P>([&](auto k) { sum[k] = block[k]; });
    int bit = 0;
    for (; blocks_ >> bit & 1; ++bit) add_level(bit, sum);
    unroll<P>([&](auto k) { store_aligned(level_[bit] + k * kWidth<T>, sum[k]); });
    ++blocks_;
  }
  // Adds all blocks to `rest`, the sum of the elements after the last block.
  void add_to(Batch<T> (&rest)[P]) const {
    for (int bit = 0; blocks_ >> bit != 0; ++bit)
      if (blocks_ >> bit & 1) add_level(bit, rest);
  }

 private:
  // The sum of 2^b blocks at index b, if bit b of blocks_ is set. Stored as numbers, since vectors would be
  // constructed.
  alignas(64) T level_[44][P * kWidth<T>];
  int64_t blocks_ = 0;

  void add_level(int bit, Batch<T> (&sum)[P]) const {
    unroll<P>([&](auto k) { sum[k] = load_aligned(level_[bit] + k * kWidth<T>) + sum[k]; });
  }
};

// The sum of f(i, at) over [begin, n), fewer than 4 kSumLanes elements. With a, b, c full sets of kSumLanes elements
// and d the rest, the order is (a + b) + (c + d), without the parts that are missing.
template <class T, class F>
[[gnu::always_inline]] inline void sum_few(int64_t begin, int64_t n, const F& f, Batch<T> (&sum)[kSumParts<T>]) {
  constexpr int w = kWidth<T>, P = kSumParts<T>;
  constexpr int64_t lanes = kSumLanes<T>;
  const auto whole = [&](int64_t i, Batch<T> (&to)[P]) __attribute__((always_inline)) {
    unroll<P>([&](auto k) __attribute__((always_inline)) { to[k] = f(i + k * w, Whole{}); });
  };
  const auto add = [&](Batch<T> (&to)[P], const Batch<T> (&x)[P]) __attribute__((always_inline)) {
    unroll<P>([&](auto k) __attribute__((always_inline)) { to[k] = to[k] + x[k]; });
  };
  int64_t i = begin;
  Batch<T> last[P];
  const auto rest = [&]() __attribute__((always_inline)) {
    unroll<P>([&](auto k) __attribute__((always_inline)) { last[k] = Batch<T>(T(0)); });
    sweep_lanes<T>(n - i, [&](int64_t j, auto at, auto k) __attribute__((always_inline)) {
      last[k] = at.keep(f(i + j, at));
    });
  };
  if (i + lanes > n) {
    rest();
    unroll<P>([&](auto k) __attribute__((always_inline)) { sum[k] = last[k]; });
    return;
  }
  whole(i, sum), i += lanes;
  if (i == n) return;
  Batch<T> next[P];
  if (i + lanes <= n) {
    whole(i, next), i += lanes;
    add(sum, next);
  }
  const bool third = i + lanes <= n;
  if (third) whole(i, next), i += lanes;
  if (i < n) {
    rest();
    if (third)
      add(last, next);
    add(sum, last);
  } else if (third) {
    add(sum, next);
  }
}

// Numbers per step (four chains of one set of lanes each) and per block (eight steps).
template <class T>
inline constexpr int64_t kSumStep = 4 * kSumLanes<T>;
template <class T>
inline constexpr int64_t kSumBlock = 8 * kSumStep<T>;

// The sum of f(i, at) over [begin, end), which is whole steps, at most a block.
template <class T, class F>
[[gnu::always_inline]] inline void sum_block(int64_t begin, int64_t end, const F& f, Batch<T> (&sum)[kSumParts<T>]) {
  constexpr int w = kWidth<T>, P = kSumParts<T>;
  Batch<T> chain[4][P];
  unroll<4 * P>([&](auto k) __attribute__((always_inline)) { chain[k / P][k % P] = f(begin + k * w, Whole{}); });
  for (int64_t i = begin + kSumStep<T>; i < end; i += kSumStep<T>)
    unroll<4 * P>([&](auto k) __attribute__((always_inline)) {
      chain[k / P][k % P] = chain[k / P][k % P] + f(i + k * w, Whole{});
    });
  unroll<P>([&](auto k) __attribute__((always_inline)) {
    sum[k] = (chain[0][k] + chain[1][k]) + (chain[2][k] + chain[3][k]);
  });
}

// sum += f over [steps, n), less than a step.
template <class T, class F>
[[gnu::always_inline]] inline void add_rest(int64_t steps, int64_t n, const F& f, Batch<T> (&sum)[kSumParts<T>]) {
  if (steps == n) return;
  Batch<T> rest[kSumParts<T>];
  sum_few<T>(steps, n, f, rest);
  unroll<kSumParts<T>>([&](auto k) __attribute__((always_inline)) { sum[k] = sum[k] + rest[k]; });
}

// The sum of f(i, at) over [0, n), less than a step.
template <class T, class F>
[[gnu::always_inline]] inline T step_sum(int64_t n, const F& f) {
  Batch<T> sum[kSumParts<T>];
  sum_few<T>(0, n, f, sum);
  return total_of<T>(sum);
}

// The sum of f(i, at) over [0, n). Blocks of 32 numbers per lane are summed in four chains of eight and combined
// pairwise. A value passes through at most 13 + log2(n / 32 lanes) + log2(lanes) additions. The error is at most that
// number of half units in the last place of the sum of absolute values. Inlined, since a call would pass f, and the
// vectors that f holds, through memory.
template <class T, class F>
[[gnu::always_inline]] inline T tree_sum(int64_t n, const F& f) {
  constexpr int P = kSumParts<T>;
  Batch<T> sum[P];
  if (n < kSumStep<T>) return step_sum<T>(n, f);
  PairwiseSum<T, P> blocks;
  const int64_t steps = n - n % kSumStep<T>;
  for (int64_t i = 0;;) {
    const int64_t end = i + kSumBlock<T> < steps ? i + kSumBlock<T> : steps;
    sum_block<T>(i, end, f, sum);
    if ((i = end) == steps) break;
    blocks.add(sum);
  }
  add_rest<T>(steps, n, f, sum);
  if (steps > kSumBlock<T>) blocks.add_to(sum);
  return total_of<T>(sum);
}

// The same for n from a step to a block; faster for many rows.
template <class T, class F>
[[gnu::always_inline]] inline T block_sum(int64_t n, const F& f) {
  Batch<T> sum[kSumParts<T>];
  const int64_t steps = n - n % kSumStep<T>;
  sum_block<T>(0, steps, f, sum);
  add_rest<T>(steps, n, f, sum);
  return total_of<T>(sum);
}

// Combines f(i, at) over [0, n), n > 0, by op. op(v, v) must be v. If the extremum is zero, its sign depends on the
// order.
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
  if (i < n) b = op(b, f(n - w, Whole{}));  // overlaps elements already taken
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

// Products of small blocks that are in cache. Included only by attention kernels.
#pragma once
#include "operands.hpp"

namespace heed::kernels::HEED_LEVEL::attention {

// How a sum is stored: c = sum, c = factor * sum, c = c + sum, c = c * factors + sum with one factor per row.
enum class Finish { set, scale, add, rescale };

inline constexpr long kNoBand = 1L << 40;

template <class F>
struct Block {
  const ElementOf<F>* a;
  long a_stride;
  const ElementOf<F>* b;  // [depth, b_stride], whole vectors
  long b_stride;
  ValueOf<F>* c;  // [rows, c_stride], whole vectors
  long c_stride;
  long depth;                           // in numbers
  const ValueOf<F>* factors = nullptr;  // Finish::rescale: one per row
  ValueOf<F> factor = 1;                // Finish::scale
  // For a triangle: row r uses only numbers r - below to r + above of the depth. Numbers outside are read to the next
  // whole tile of rows and must be 0 in A.
  long below = kNoBand, above = kNoBand;
  Fetch* fetch = nullptr;  // advanced with each register tile; or null
};

// R rows by V vectors of C stay in registers while p runs over the depth.
template <class F, int R, int V, Order kOrder, Finish kFinish>
[[gnu::always_inline]] inline void register_tile(const Block<F>& x) {
  using T = ValueOf<F>;
  using Step = typename F::Step;
  constexpr int w = kWidth<T>;
  Batch<T> sum[R][V];
  unroll<R>([&](auto r) { unroll<V>([&](auto v) { sum[r][v] = Batch<T>(T(0)); }); });
  // the part of the depth that these rows use
  const long begin = x.below < 0 ? -x.below / F::kDepth : 0,
             end = steps_of<F>(x.above < x.depth - R ? x.above + R : x.depth);
  const ElementOf<F>* a = x.a + begin * (kOrder == Order::by_row ? 1 : x.a_stride);
  const ElementOf<F>* b = x.b + begin * x.b_stride;
  typename Step::Rule rule(sum);
  for (long p = end - begin; p > 0; --p) {
    typename Step::Vector row[V];
    unroll<V>([&](auto v) { row[v] = Step::load(b + v * w); });
    unroll<R>([&](auto r) {
      const typename Step::Vector e = Step::broadcast(kOrder == Order::by_row ? a + r * x.a_stride : a + r);
      unroll<V>([&](auto v) { sum[r][v] = Step::add(e, row[v], sum[r][v]); });
    });
    a += kOrder == Order::by_row ? 1 : x.a_stride;
    b += x.b_stride;
  }
  rule.end(sum);
  unroll<R>([&](auto r) {
    const Batch<T> factor(kFinish == Finish::rescale ? x.factors[r] : x.factor);
    unroll<V>([&](auto v) {
      T* c = x.c + r * x.c_stride + v * w;
      if constexpr (kFinish == Finish::set)
        store_aligned(c, sum[r][v]);
      else if constexpr (kFinish == Finish::scale)
        store_aligned(c, sum[r][v] * factor);
      else if constexpr (kFinish == Finish::add)
        store_aligned(c, sum[r][v] + load_aligned(c));
      else
        store_aligned(c, fma(load_aligned(c), factor, sum[r][v]));
    });
  });
}

// 16 sums hide the latency of a multiply-add at two per cycle and leave registers for the operands; without AVX-512
// there are 16 registers in all. More than 8 rows stored by row would need too many registers for addresses.
template <class F, int V, Order kOrder>
inline constexpr int kRowsOfTile = kWidth<ValueOf<F>> * sizeof(ValueOf<F>) == 64
                                       ? (V == 1 && kOrder == Order::by_column ? 16 : 8)
                                   : V == 2 ? (F::kDots ? 4 : 6)
                                            : 8;

template <class F, int R, int V, Order kOrder, Finish kFinish>
[[gnu::noinline]] void row_tiles(Block<F> x, long rows) {
  for (; rows >= R; rows -= R) {
    if (x.fetch != nullptr) x.fetch->prefetch_next();
    register_tile<F, R, V, kOrder, kFinish>(x);
    x.a += kOrder == Order::by_row ? R * x.a_stride : R;
    x.c += R * x.c_stride;
    x.below -= R, x.above += R;
    if constexpr (kFinish == Finish::rescale) x.factors += R;
  }
  if constexpr (R > 1) {
    if (rows > 0) row_tiles<F, R == 6 ? 4 : R / 2, V, kOrder, kFinish>(x, rows);
  }
}

// C [rows, columns] from A [rows, depth] and B [depth, columns]; columns is a multiple of the vector's width.
template <Order kOrder, Finish kFinish, class F>
inline void product(Block<F> x, long rows, long columns) {
  using T = ValueOf<F>;
  constexpr int w = kWidth<T>;
  for (; columns > 0; columns -= 2 * w, x.b += 2 * w, x.c += 2 * w) {
    if (columns >= 2 * w)
      row_tiles<F, kRowsOfTile<F, 2, kOrder>, 2, kOrder, kFinish>(x, rows);
    else
      row_tiles<F, kRowsOfTile<F, 1, kOrder>, 1, kOrder, kFinish>(x, rows);
  }
}

}  // namespace heed::kernels::HEED_LEVEL::attention

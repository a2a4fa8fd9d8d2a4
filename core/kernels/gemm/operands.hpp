// Operands of the register tile: b packed in panels, a in place if its layout allows, else copied. Included only by
// *.kernel.cpp.
#pragma once
#include "gemm.hpp"
#include "pack.hpp"

namespace heed::kernels::HEED_LEVEL {

// Bytes of packed b that stay in L2 along with a and c.
inline constexpr size_t kPackedBytesInL2 = size_t{1} << 19;

inline constexpr long ceil_div(long a, long b) { return (a + b - 1) / b; }

// Numbers of k per step of the tile, and steps that no block separates: pairs of bf16 stay together.
template <class P>
inline constexpr long kStep = std::is_same_v<P, Bf16Pairs> ? 2 : 1;
template <class P>
inline constexpr long kTogether = std::is_same_v<P, Bf16Numbers> ? 2 : 1;

// The depth of a block, in steps, and its rows. Blocks are deep, so that sums of c seldom pass through memory. A block
// of a, kBlockRows by kBlockDepth, stays in L2.
template <class P>
inline constexpr long kBlockDepth = 256 * kTogether<P>;
template <class P>
inline constexpr long kBlockRows = 192 / kTogether<P>;

// Divides k into equal blocks of at most kBlockDepth steps; one empty block if k is 0.
template <class P>
struct DepthBlocks {
  long steps, count, size;
  explicit DepthBlocks(long k)
      : steps(ceil_div(k, kStep<P> * kTogether<P>) * kTogether<P>),
        count(steps == 0 ? 1 : ceil_div(steps, kBlockDepth<P>)),
        size(ceil_div(steps / kTogether<P>, count) * kTogether<P>) {}
  long first(long q) const { return q * size; }
  long depth(long q) const { return steps - q * size < size ? steps - q * size : size; }
};

// Rows of a as the tile reads them.
template <class E>
struct Rows {
  const E* data;
  long stride;
  Order order;
};

// Rows [row, row + rows) of a and panels of b, for steps [p, p + depth). S is the type in memory.
template <class P, class S>
struct Operands {
  using T = typename Product<P>::Element;
  using From = Source<P, S>;

  // The numbers of k within steps [p, p + depth).
  static long numbers(const GemmProblem& g, long p, long depth) { return g.k - p < depth ? g.k - p : depth; }

  static void pack_panel(const GemmProblem& g, long column, long p, long depth, T* out) {
    const S* b = static_cast<const S*>(g.b) + column * g.b_column + p * g.b_row;
    const int lanes = static_cast<int>(g.n - column < kPanel<P> ? g.n - column : kPanel<P>);
    pack<P>(OperandLanes<S>{b, g.b_column, g.b_row, lanes, numbers(g, p, depth)}, kPanel<P>, depth, out);
  }

  // Packs columns of a in groups of the tile's rows.
  static void pack_groups(const S* a, long k_stride, long rows, long k, long depth, T* out) {
    constexpr int group = Product<P>::kRows, w = kWidth<T>;
    for (long s = 0; s < depth; ++s) {
      const long number = number_at<P>(s), there = number < k ? rows : 0;
      const S* from = a + number * k_stride;
      for (long i = 0; i < rows; i += 64 / static_cast<long>(sizeof(T))) __builtin_prefetch(from + 8 * k_stride + i);
      T* to = out + s * group;
      long i = 0;
      if constexpr (w == 2 * group)  // two groups at a time
        for (; i + w <= rows; i += w, to += 2 * packed_group<P>(depth))
          store_halves(to, to + packed_group<P>(depth), From::load(from + i, there - i));
      for (; i < rows; i += group, to += packed_group<P>(depth))
        unroll<(group + w - 1) / w>([&](auto v) {  // whole vectors: the next step, or the gap, follows
          store(to + v * w, From::load(from + i + v * w, there - i - v * w));
        });
    }
  }

  // Packs rows of a, contiguous along k, in groups of the tile's rows.
  static void pack_turned(const S* a, long stride, long rows, long k, long depth, T* out) {
    constexpr int group = Product<P>::kRows, w = kWidth<T>;
    for (long i = 0; i < rows; i += group, out += packed_group<P>(depth)) {
      const long there = rows - i < group ? rows - i : group;
      transpose<T>(a + i * stride, stride, there, k, group, [&](long s, long lane, Batch<T> x, int) {
        if (lane + w <= group)
          store(out + s * group + lane, x);
        else
          store_part(out + s * group + lane, x, static_cast<int>(group - lane));
      });
    }
  }

  // Whether the rows of a tile would share few sets of L1, so that they evict each other: then they are packed.
  static bool rows_collide(const GemmProblem& g) {
    return Product<P>::kRows > 8 && g.a_row * static_cast<long>(sizeof(S)) % 4096 == 0;
  }

  static Rows<T> rows(const GemmProblem& g, long row, long rows, long p, long depth, T* scratch) {
    const S* a = static_cast<const S*>(g.a) + row * g.a_row + p * g.a_column;
    const long k = numbers(g, p, depth);
    if constexpr (std::is_same_v<S, P>)
      if (g.a_column == 1) {
        if (rows < 2 * Product<P>::kRows || !rows_collide(g)) return {a, g.a_row, Order::by_row};
        pack_turned(a, g.a_row, rows, k, depth, scratch);
        return {scratch, Product<P>::kRows, Order::packed};
      }
    if (g.a_row == 1) {
      // In place, each step would be on another page, and with strides of large powers of two in few sets of L1.
      pack_groups(a, g.a_column, rows, k, depth, scratch);
      return {scratch, Product<P>::kRows, Order::packed};
    }
    // The last vector of a row overwrites part of the next row, which is written later, or the spare end of the
    // scratch.
    for (long i = 0; i < rows; ++i) pack_row<P>(a + i * g.a_row, g.a_column, k, depth, scratch + i * depth);
    return {scratch, depth, Order::by_row};
  }
};

}  // namespace heed::kernels::HEED_LEVEL

// Products of few rows by a quantized b, which is read in place. Included only by *.kernel.cpp.
//
// A sum has 16 lanes on every level: number i of k is added to lane i mod 16. So a row has the same bits alone, in a
// batch, and on every level with fused multiply-add.
#pragma once
#include "blocks_of_32.hpp"
#include "few_rows.hpp"

namespace heed::kernels::HEED_LEVEL {

// Rows of a that share each block of b, if all rows do; more rows are multiplied by unpacked blocks, which takes less
// than to unpack them for each group of rows.
inline constexpr int kQuantizedRows = 4;
// Columns at once, for R rows: their sums leave registers for the numbers of a block.
template <int R>
inline constexpr int kQuantizedColumns = kHalfParts == 1            ? 4
                                         : 8 / (R * kHalfParts) > 4 ? 4
                                         : 8 / (R * kHalfParts) > 1 ? 8 / (R * kHalfParts)
                                                                    : 1;
// Bytes of a column that are prefetched into L2 ahead of use.
inline constexpr long kQuantizedAhead = 2048;

// The lanes of one sum.
struct alignas(64) LaneSums {
  float lane[kSumLanes<float>];
  float total() const {
    HalfBlock parts;
    unroll<kHalfParts>([&](auto k) { parts[k] = load_aligned(lane + k * kWidth<float>); });
    return total_of<float>(parts);
  }
};

// sums[i * C + j] += the lanes of the dot product of row i of a with `blocks` blocks of column j.
template <class Q, int R, int C>
[[gnu::noinline]] inline void add_blocks(const float* a, long a_row, const uint8_t* const (&columns)[C], long blocks,
                                         LaneSums* sums) {
  Batch<float> sum[R][C][kHalfParts];
  const auto each_sum = [&](const auto& f) __attribute__((always_inline)) {
    unroll<R>([&](auto i) __attribute__((always_inline)) {
      unroll<C>([&](auto j) __attribute__((always_inline)) {
        unroll<kHalfParts>([&](auto k) __attribute__((always_inline)) {
          f(sum[i][j][k], sums[i * C + j].lane + k * kWidth<float>);
        });
      });
    });
  };
  each_sum([](Batch<float> & s, const float* kept) __attribute__((always_inline)) { s = load_aligned(kept); });
  const uint8_t* b[C];
  for (int j = 0; j < C; ++j) b[j] = columns[j];
  for (long n = 0; n < blocks; ++n, a += kBlockNumbers) {
    unroll<C>([&](auto j) __attribute__((always_inline)) {
      if constexpr (!std::is_same_v<Q, BlocksUnpacked>) __builtin_prefetch(b[j] + kQuantizedAhead, 0, 2);
      Q::each(
          b[j], [&](auto half, const HalfBlock& x) __attribute__((always_inline)) {
            unroll<R>([&](auto i) __attribute__((always_inline)) {
              unroll<kHalfParts>([&](auto k) __attribute__((always_inline)) {
                sum[i][j][k] = fma(load(a + i * a_row + 16 * half + k * kWidth<float>), x[k], sum[i][j][k]);
              });
            });
          });
      b[j] += Q::kBytes;
    });
  }
  each_sum([](Batch<float> & s, float* kept) __attribute__((always_inline)) { store_aligned(kept, s); });
}

// C columns of b, and the number of those that exist; the last is repeated in place of the others.
template <int C>
struct FewColumns {
  const uint8_t* data[C];
  long column[C];
  int count;
};

template <int C>
inline void finish_rows(const GemmProblem& g, long row, int rows, const FewColumns<C>& columns, const LaneSums* sums) {
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < columns.count; ++j) finish_few(g, row + i, columns.column[j], sums[i * C + j].total());
}

// Calls f(columns) for groups of C columns that are far apart, as dot_columns() does: each is one long run in memory.
template <class Q, int C, class F>
inline void each_columns(const GemmProblem& g, long begin, long end, const F& f) {
  const auto* b = static_cast<const uint8_t*>(g.b);
  const long apart = ceil_div(end - begin, C);
  for (long j = begin; j < begin + apart; ++j) {
    FewColumns<C> columns = {{}, {}, 0};
    for (int s = 0; s < C; ++s) {
      const bool there = j + s * apart < end;
      columns.column[s] = there ? j + s * apart : end - 1;
      columns.data[s] = b + (g.b_first + columns.column[s] * g.b_column) / kBlockNumbers * Q::kBytes;
      if (there) columns.count = s + 1;
    }
    f(columns);
  }
}

// All rows of a share the blocks of b.
template <class Q, int R>
inline void few_blocks(const GemmProblem& g, long begin, long end) {
  constexpr int C = kQuantizedColumns<R>;
  each_columns<Q, C>(g, begin, end, [&](const FewColumns<C>& columns) {
    LaneSums sums[R * C] = {};
    add_blocks<Q, R, C>(static_cast<const float*>(g.a), g.a_row, columns.data, g.k / kBlockNumbers, sums);
    finish_rows(g, 0, R, columns, sums);
  });
}

// Numbers of a column that are unpacked at once.
inline constexpr long kUnpackedRun = 512;

// Columns are unpacked, one part of k at a time, and multiplied by groups of rows.
template <class Q>
inline void many_blocks(const GemmProblem& g, long begin, long end) {
  constexpr int R = kQuantizedRows, C = kQuantizedColumns<R>;
  alignas(64) float numbers[C][kUnpackedRun];
  LaneSums sums[kFewRows * C];
  each_columns<Q, C>(g, begin, end, [&](const FewColumns<C>& columns) {
    memset(sums, 0, sizeof sums);
    const uint8_t* unpacked[C];
    for (int j = 0; j < C; ++j) unpacked[j] = reinterpret_cast<const uint8_t*>(numbers[j]);
    for (long first = 0; first < g.k; first += kUnpackedRun) {
      const long n = g.k - first < kUnpackedRun ? g.k - first : kUnpackedRun;
      for (int j = 0; j < C; ++j) unpack_numbers<Q>(columns.data[j], first, n, numbers[j]);
      const float* a = static_cast<const float*>(g.a) + first;
      long i = 0;
      for (; i + R <= g.m; i += R)
        add_blocks<BlocksUnpacked, R, C>(a + i * g.a_row, g.a_row, unpacked, n / kBlockNumbers, sums + i * C);
      for (; i < g.m; ++i)
        add_blocks<BlocksUnpacked, 1, C>(a + i * g.a_row, g.a_row, unpacked, n / kBlockNumbers, sums + i * C);
    }
    finish_rows(g, 0, static_cast<int>(g.m), columns, sums);
  });
}

inline void few_quantized(const GemmProblem& g, long begin, long end) {
  with_blocks(g.b_blocks, [&]<class Q>(Q) {
    switch (g.m) {
      case 1: return few_blocks<Q, 1>(g, begin, end);
      case 2: return few_blocks<Q, 2>(g, begin, end);
      case 3: return few_blocks<Q, 3>(g, begin, end);
      case 4: return few_blocks<Q, 4>(g, begin, end);
      default: return many_blocks<Q>(g, begin, end);
    }
  });
}

}  // namespace heed::kernels::HEED_LEVEL

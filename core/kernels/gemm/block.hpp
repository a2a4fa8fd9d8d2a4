// Blocks of c from a packed b, one register tile after another. Included only by *.kernel.cpp.
#pragma once
#include "operands.hpp"

namespace heed::kernels::HEED_LEVEL {

// The panels of b. The packed b holds, for each block of k, its panels one after another, [steps][kPanel] each.
template <class P>
inline long panels(const GemmProblem& g) {
  return ceil_div(g.n, kPanel<P>);
}

template <class P>
inline size_t packed_bytes(const GemmProblem& g) {
  return static_cast<size_t>(panels<P>(g) * DepthBlocks<P>(g.k).steps * kPanel<P>) *
         sizeof(typename Product<P>::Element);
}

template <class P>
inline long panel_offset(const GemmProblem& g, const DepthBlocks<P>& blocks, long q, long j) {
  return (blocks.first(q) * panels<P>(g) + blocks.depth(q) * j) * kPanel<P>;
}

template <class P, class S>
inline void pack_b(const GemmProblem& g, long begin, long end, void* packed) {
  const DepthBlocks<P> blocks(g.k);
  auto* out = static_cast<typename Product<P>::Element*>(packed);
  for (long q = 0; q < blocks.count; ++q)
    for (long j = begin; j < end; ++j)
      Operands<P, S>::pack_panel(g, j * kPanel<P>, blocks.first(q), blocks.depth(q),
                                 out + panel_offset(g, blocks, q, j));
}

template <class P>
inline long depth_of(long k) {
  return DepthBlocks<P>(k).size * kStep<P>;
}

// Prefetches of the tiles in block q of k: the columns of a that are packed for the next block and, in the last block,
// the memory named by the caller.
template <class P, class S>
inline Fetch ahead_of(const GemmProblem& g, long row, long rows, const DepthBlocks<P>& blocks, long q, long tiles) {
  const long from = blocks.first(q + 1) * kStep<P>, to = blocks.first(q + 2) * kStep<P>;
  const long lines = g.a_row == 1 && from < g.k ? (to < g.k ? to : g.k) - from : 0;
  Fetch fetch;
  fetch.to_read(static_cast<const S*>(g.a) + row + from * g.a_column, g.a_column, lines, rows);
  if (q + 1 == blocks.count)
    for (const GemmProblem::Ahead& x : g.ahead) {
      const auto* data = static_cast<const char*>(x.data);
      x.write ? fetch.to_write(data, x.stride, x.rows, x.bytes) : fetch.to_read(data, x.stride, x.rows, x.bytes);
    }
  fetch.spread(tiles);
  return fetch;
}

// Panels [begin, end) of a packed b.
template <class P>
struct PackedPanels {
  const GemmProblem& g;
  const DepthBlocks<P>& blocks;
  const typename Product<P>::Element* packed;
  long begin, end;

  // Panel j of block q of k: [depth of the block, kPanel].
  const typename Product<P>::Element* at(long q, long j) const { return packed + panel_offset(g, blocks, q, j); }
};

// Prefetches of the tiles in panel j: the next packed panel, if the packed panels do not all stay in L2 until the next
// rows of c need them.
template <class P>
inline Fetch next_panel(const PackedPanels<P>& b, long q, long j, long tiles) {
  const bool across = j + 1 < b.end;
  const size_t all = static_cast<size_t>((b.end - b.begin) * kPanel<P> * b.blocks.steps) * sizeof *b.packed;
  Fetch fetch;
  if (all <= kPackedBytesInL2 || !(across || q + 1 < b.blocks.count)) return fetch;
  const auto* next = across ? b.at(q, j + 1) : b.at(q + 1, b.begin);
  fetch.to_read(next, kPanel<P>, b.blocks.depth(across ? q : q + 1), kPanel<P>);
  fetch.spread(tiles);
  return fetch;
}

template <class P, class S>
inline void block(const GemmProblem& g, long row, long rows, long begin, long end, const void* packed) {
  using E = typename Product<P>::Element;
  using T = typename Product<P>::Sum;
  static_assert(kBlockRows<P> % Product<P>::kRows == 0);
  alignas(64) E scratch[kBlockRows<P> / Product<P>::kRows * packed_group<P>(kBlockDepth<P>)];
  const DepthBlocks<P> blocks(g.k);
  const PackedPanels<P> b{g, blocks, static_cast<const E*>(packed), begin, end};
  for (long q = 0; q < blocks.count; ++q) {
    const long depth = blocks.depth(q);
    const Rows<E> a = Operands<P, S>::rows(g, row, rows, blocks.first(q), depth, scratch);
    const bool last = q + 1 == blocks.count;
    const long tiles = ceil_div(rows, Product<P>::kRows);  // per panel
    Fetch ahead = ahead_of<P, S>(g, row, rows, blocks, q, (end - begin) * tiles);
    [[maybe_unused]] typename Product<P>::CallRule rule;
    for (long j = begin; j < end; ++j) {
      const long column = j * kPanel<P>, left = g.n - column;
      const int columns = static_cast<int>(left < kPanel<P> ? left : kPanel<P>);
      Fetch next;
      if (a.order == Order::packed)  // otherwise k is short, or prefetching does not pay
        next = next_panel(b, q, j, tiles);
      const T* bias = last && g.bias != nullptr ? static_cast<const T*>(g.bias) + column : nullptr;
      T* c = static_cast<T*>(g.c) + (row - g.c_row) * g.ldc + column - g.c_column;
      const TileOut<T> out{c, g.ldc, g.add || q > 0, static_cast<T>(g.alpha), bias, {&ahead, &next}};
      if (a.order == Order::by_row)
        panel<P, Order::by_row>(rows, columns, depth, a.data, a.stride, b.at(q, j), kPanel<P>, out);
      else
        panel<P, Order::packed>(rows, columns, depth, a.data, a.stride, b.at(q, j), kPanel<P>, out);
    }
  }
}

template <class P>
constexpr GemmKind kind(decltype(GemmKind::pack) pack, decltype(GemmKind::block) block,
                        decltype(GemmKind::few_rows) few, decltype(GemmKind::pack_rows) pack_rows, long few_in_place) {
  return {kPanel<P>,
          kBlockRows<P>,
          Product<P>::kRows,
          sizeof(typename Product<P>::Sum),
          depth_of<P>,
          packed_bytes<P>,
          pack,
          block,
          few,
          pack_rows,
          few_in_place};
}

}  // namespace heed::kernels::HEED_LEVEL

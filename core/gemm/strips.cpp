// Matrix products of some rows by many columns, split among threads by columns. The task that computes a strip of c
// packs its part of b, one block of k at a time. With so few rows, packing all of b first would take a large part of
// the product's time.
#include <algorithm>
#include <heed/core/gemm/ways.hpp>

namespace heed::detail {
namespace {

// The maximum of rows of c, the minimum of strips, and the maximum of panels per strip.
constexpr Index kStripRows = 512, kStrips = 12, kStripPanels = 8;
// Each strip reads all of a. If a has more bytes than this, it comes from memory, so there are fewer and wider strips.
constexpr Index kLargeBytes = Index{1} << 20, kWidePanels = 12;

// Panels per strip. They do not change the sums, so they may depend on the number of threads.
Index panels_per_strip(const GemmKind& kind, const GemmProblem& g) {
  const Index all = ceil_div(g.n, kind.panel_columns), panels = std::min(kStripPanels, all / kStrips);
  if (g.m * g.k * a_size(kind, g) <= kLargeBytes) return panels;
  return std::max(panels, std::min(kWidePanels, ceil_div(all, threads())));
}

// The memory of b for prefetching, if the rows or the columns of b are contiguous; else empty, and for a quantized b,
// whose unpacking takes longer than reading it.
GemmProblem::Ahead source_of(const GemmKind& kind, const GemmProblem& g) {
  if (g.b_blocks != kernels::Blocks::none) return {};
  const Index size = b_size(kind, g);
  if (g.b_column == 1) return {g.b, g.b_row * size, g.k, g.n * size};
  if (g.b_row == 1) return {g.b, g.b_column * size, g.n, g.k * size};
  return {};
}

// Computes all rows of some columns of c, on the calling thread. `packed` has room for these columns and one block of
// k, and stays in the second cache. While one block of k is computed, the next part of b is prefetched. For the last
// block this is `after`, which this thread probably packs next.
void multiply_strip(const GemmKind& kind, const GemmProblem& g, char* packed, const GemmProblem::Ahead& after) {
  const Index panels = ceil_div(g.n, kind.panel_columns), depth = std::max<Index>(1, kind.depth(g.k));
  for (Index first = 0; first == 0 || first < g.k; first += depth) {
    GemmProblem part = depths_of(kind, g, first, depth);
    kind.pack(part, 0, panels, packed);
    const GemmProblem::Ahead next =
        first + depth < g.k ? source_of(kind, depths_of(kind, g, first + depth, depth)) : after;
    for (Index row = 0; row < g.m; row += kind.block_rows) {
      const Index rows = std::min<Index>(kind.block_rows, g.m - row), begin = next.rows * row / g.m,
                  end = next.rows * (row + rows) / g.m;
      part.ahead[0] = {static_cast<const char*>(next.data) + begin * next.stride, next.stride, end - begin, next.bytes};
      kind.block(part, row, rows, 0, panels, packed);
    }
  }
}

}  // namespace

bool is_for_strips(const GemmKind& kind, const GemmProblem& g) {
  return g.m <= kStripRows && ceil_div(g.n, kind.panel_columns) >= kStrips && !packs_columns(g);
}

void multiply_strips(const GemmKind& kind, const Work& w) {
  const Index all = ceil_div(w.g.n, kind.panel_columns), panels = panels_per_strip(kind, w.g),
              columns = panels * kind.panel_columns;
  const Index depth = std::max<Index>(1, kind.depth(w.g.k));
  ThreadScratch<char> packed(
      static_cast<Index>(kind.packed_bytes(depths_of(kind, columns_of(kind, w.g, 0, columns), 0, depth))));
  ThreadScratch<char> results(w.g.c != nullptr ? 0 : w.g.m * columns * kind.sum_bytes);
  const auto strip = [&](Index t) {
    return columns_of(kind, w.g, t * columns, std::min(columns, w.g.n - t * columns));
  };
  const Index strips = ceil_div(all, panels);
  parallel_for_each(strips, 1, [&](Index t) {
    GemmProblem g = strip(t);
    if (g.c == nullptr) g.c = results.mine(), g.ldc = g.n;
    GemmProblem::Ahead after = {};
    if (t + 1 < strips) after = source_of(kind, depths_of(kind, strip(t + 1), 0, depth));
    multiply_strip(kind, g, packed.mine(), after);
    if (w.finish) w.finish({g.c, g.ldc, 0, g.m, w.column + t * columns, g.n});
  });
}

}  // namespace heed::detail

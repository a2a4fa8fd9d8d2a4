// Matrix products by blocks: the right operand is packed, once for all threads or by each thread for itself, then
// blocks of the result are computed. And products that are split into halves of k.
#include <algorithm>
#include <heed/core/gemm/ways.hpp>

namespace heed::detail {
namespace {

constexpr Index kTasks = 16;  // per product, enough to balance a few cores
// Maximum and minimum of tasks per product if each task packs its part of a. With fewer tasks, less is packed.
constexpr Index kRepackTasks = 8, kFewTasks = 4;
constexpr Index kRepackWork = 1 << 24;          // multiply-adds per task that packs its part of a
constexpr Index kBlockColumns = 256;            // of c: the block and its parts of a and b stay in the second cache
constexpr Index kPackedBytes = Index{8} << 20;  // bytes of b that are packed at a time
constexpr Index kPackGrain = 1 << 15;           // bytes of b that a task packs
constexpr Index kOwnRows = 128;                 // each thread packs its own b for at least this many rows of a,
constexpr Index kOwnBytes = Index{1} << 20;     // if the packed b has at most this many bytes
constexpr Index kAddGrain = 1 << 14;            // numbers that a task adds
// Bounds of products that are split into halves of k: the minimum of k, and the maximum of k * n.
constexpr Index kHalvedDepth = 512, kHalvedNumbers = 1 << 19;

// How c is split into tasks: rows and panels per block. Depends on the shape and the level's tile alone.
struct Cut {
  Index rows, panels;
};

// Makes g prefetch the memory that `finish` will read or write: these rows, and the columns [column, column + n) of g.
void fetch_operands(GemmProblem& g, const Work& w, Index row, Index rows, Index column, Index n) {
  for (int i = 0; i < GemmFinish::kMaxOperands; ++i) {
    const MatrixIn& x = w.finish.operands()[i];
    const Index size = static_cast<Index>(size_of(x.dtype));
    if (x.data != nullptr)
      g.ahead[i] = {shifted(x, row * x.row + w.column + column), x.row * size, rows, n * size, true};
  }
}

// Rows [row, row + rows) of panels [begin, end) of c.
struct Block {
  Index row, rows, begin, end;
};

// Computes a block of c, and calls `finish` on it.
void multiply_block(const GemmKind& kind, const Work& w, const Block& block, const void* packed, char* scratch) {
  const auto [row, rows, begin, end] = block;
  if (!w.finish) return kind.block(w.g, row, rows, begin, end, packed);
  GemmProblem g = w.g;
  const Index column = begin * kind.panel_columns, columns = std::min(g.n, end * kind.panel_columns) - column;
  if (g.c == nullptr) g.c = scratch, g.ldc = columns, g.c_row = row, g.c_column = column;
  fetch_operands(g, w, row, rows, column, columns);
  kind.block(g, row, rows, begin, end, packed);
  char* first = static_cast<char*>(g.c) + ((row - g.c_row) * g.ldc + column - g.c_column) * kind.sum_bytes;
  w.finish({first, g.ldc, row, rows, w.column + column, columns});
}

// Computes all of c from all of b, on the calling thread.
void blocks_here(const GemmKind& kind, const Work& w, const void* packed) {
  const Cut cut{kind.block_rows, ceil_div(w.g.n, kind.panel_columns)};
  Scratch<char> scratch(
      static_cast<std::size_t>(w.g.c != nullptr ? 0 : std::min(cut.rows, w.g.m) * w.g.n * kind.sum_bytes));
  for (Index row = 0; row < w.g.m; row += cut.rows)
    multiply_block(kind, w, {row, std::min(cut.rows, w.g.m - row), 0, cut.panels}, packed, scratch.data());
}

// Splits c into blocks of a multiple of `row_step` rows.
Cut cut_of(const GemmKind& kind, const GemmProblem& g, Index row_step) {
  const Index all = ceil_div(g.n, kind.panel_columns);
  // If each block packs its part of a, blocks of the same rows pack the same part. So c is then split by rows first
  // unless it is wide, and small products are split into few tasks.
  const bool repacks = packs_columns(g), rows_first = repacks && 2 * g.m >= g.n;
  const Index max_panels = (rows_first ? 2 : 1) * kBlockColumns / kind.panel_columns, min_panels = repacks ? 1 : 4,
              min_rows = (repacks ? 12 : 4) * kind.row_step,
              min_tasks = repacks ? std::clamp(g.m * g.n * g.k / kRepackWork, kFewTasks, kRepackTasks) : kTasks;
  Cut cut{kind.block_rows, std::min<Index>(all, max_panels)};
  const auto tasks = [&] { return ceil_div(g.m, cut.rows) * ceil_div(all, cut.panels); };
  const auto work = [&] { return cut.rows * cut.panels * kind.panel_columns * g.k; };
  while (tasks() < min_tasks && work() >= 2 * kTaskWork) {
    const bool columns = cut.panels > min_panels, rows = cut.rows / 2 >= min_rows;
    if (columns && !(rows_first && rows))
      cut.panels = ceil_div(cut.panels, 2);
    else if (rows)
      cut.rows /= 2;
    else
      break;
  }
  // Make the blocks equal: no small one at the end.
  cut.rows = round_up(ceil_div(g.m, ceil_div(g.m, cut.rows)), row_step);
  cut.panels = ceil_div(all, ceil_div(all, cut.panels));
  return cut;
}

// Computes all of c from all of b, on all threads. packed() returns the packed b for the calling thread.
template <class Packed>
void blocks_parallel(const GemmKind& kind, const Work& w, const Packed& packed) {
  const GemmProblem& g = w.g;
  const Cut cut = cut_of(kind, g, w.finish ? kFinishRows : kind.row_step);
  const Index panels = ceil_div(g.n, kind.panel_columns), across = ceil_div(panels, cut.panels);
  // Scratch per thread for one block of the result. Empty if the result has memory.
  const Index columns = std::min(g.n, cut.panels * kind.panel_columns);
  ThreadScratch<char> scratch(g.c != nullptr ? 0 : std::min(cut.rows, g.m) * columns * kind.sum_bytes);
  parallel_for_each(ceil_div(g.m, cut.rows) * across, 1, [&](Index t) {
    const Index row = t / across * cut.rows, panel = t % across * cut.panels;
    const Block block{row, std::min(cut.rows, g.m - row), panel, std::min(panel + cut.panels, panels)};
    multiply_block(kind, w, block, packed(), scratch.mine());
  });
}

// A packed copy of b per thread, made when the thread first needs it. Packing is little work compared with many rows of
// a, and reading b from the cache of another core is slow.
class OwnCopies {
 public:
  OwnCopies(const GemmKind& kind, const GemmProblem& g)
      : kind_(kind),
        g_(g),
        copies_(static_cast<Index>(kind.packed_bytes(g))),
        ready_(static_cast<std::size_t>(threads())) {
    std::fill_n(ready_.data(), threads(), char{0});
  }
  const void* operator()() {
    char* copy = copies_.mine();
    if (char& ready = ready_.data()[thread_slot()]; ready == 0) {
      kind_.pack(g_, 0, ceil_div(g_.n, kind_.panel_columns), copy);
      ready = 1;
    }
    return copy;
  }

 private:
  const GemmKind& kind_;
  const GemmProblem& g_;
  ThreadScratch<char> copies_;
  Scratch<char> ready_;  // by slot
};

// The address `bytes` after p; null if p is null.
const void* moved(const void* p, Index bytes) { return p == nullptr ? nullptr : static_cast<const char*>(p) + bytes; }

// Lets b begin `elements` further on.
void move_b(const GemmKind& kind, GemmProblem& g, Index elements) {
  if (g.b_blocks != kernels::Blocks::none)
    g.b_first += elements;
  else
    g.b = moved(g.b, elements * b_size(kind, g));
}

}  // namespace

GemmProblem columns_of(const GemmKind& kind, GemmProblem g, Index column, Index n) {
  move_b(kind, g, column * g.b_column);
  if (g.c != nullptr) g.c = static_cast<char*>(g.c) + column * kind.sum_bytes;
  g.bias = moved(g.bias, column * kind.sum_bytes);
  g.n = n;
  return g;
}

GemmProblem depths_of(const GemmKind& kind, GemmProblem g, Index first, Index depth) {
  g.a = moved(g.a, first * g.a_column * a_size(kind, g));
  move_b(kind, g, first * g.b_row);
  g.add = g.add || first > 0;
  if (first + depth < g.k) g.bias = nullptr;
  g.k = std::min(depth, g.k - first);
  return g;
}

void pack_parallel(const GemmKind& kind, const GemmProblem& g, Index panel_bytes, void* packed) {
  parallel_for(ceil_div(g.n, kind.panel_columns), std::max<Index>(1, kPackGrain / std::max<Index>(1, panel_bytes)),
               [&](Index begin, Index end) { kind.pack(g, begin, end, packed); });
}

void multiply_blocks(const GemmKind& kind, const Work& w) {
  const GemmProblem& whole = w.g;
  if (threads() > 1 && whole.m / threads() >= kOwnRows && static_cast<Index>(kind.packed_bytes(whole)) <= kOwnBytes) {
    OwnCopies copies(kind, whole);
    return blocks_parallel(kind, w, [&] { return copies(); });
  }
  const Index panel_bytes = static_cast<Index>(kind.packed_bytes(columns_of(kind, whole, 0, kind.panel_columns)));
  const Index max_panels = std::max<Index>(16, kPackedBytes / std::max<Index>(1, panel_bytes));  // panels at a time
  const Index all = ceil_div(whole.n, kind.panel_columns);
  Scratch<char> packed(static_cast<std::size_t>(std::min(all, max_panels) * panel_bytes));
  for (Index first = 0; first < all; first += max_panels) {
    const Index column = first * kind.panel_columns;
    const GemmProblem g = columns_of(kind, whole, column, std::min(max_panels * kind.panel_columns, whole.n - column));
    pack_parallel(kind, g, panel_bytes, packed.data());
    blocks_parallel(kind, {g, w.finish, column}, [&] { return packed.data(); });
  }
}

void multiply_blocks(const GemmKind& kind, const Work& w, const void* packed, bool here) {
  if (here) return blocks_here(kind, w, packed);
  blocks_parallel(kind, w, [&] { return packed; });
}

// ---- Halves of k ----

// The gradient of a weight is a sum over the rows of two activations, which are in the caches of the threads that
// computed them. It is computed as the sum of two products, over the halves of k. So the only data of other threads
// that a thread reads is the small result. The choice depends on shape and strides alone, because it changes the order
// of sums.
bool is_halved(const GemmProblem& g) {
  return packs_columns(g) && g.k >= kHalvedDepth && 4 * g.m * g.n <= g.k * (g.m + g.n) &&
         g.m * g.n * g.k > kSerialWork && g.k * g.n <= kHalvedNumbers;
}

namespace {

template <class T>
void add_rows(const GemmProblem& g, const void* sums, Index begin, Index end) {
  for (Index i = begin; i < end; ++i) {
    T* c = static_cast<T*>(g.c) + i * g.ldc;
    const T* from = static_cast<const T*>(sums) + i * g.n;
    for (Index j = 0; j < g.n; ++j) c[j] += from[j];
  }
}

}  // namespace

void multiply_halves(const GemmKind& kind, const GemmProblem& g, bool here) {
  const Index depth = round_up(ceil_div(g.k, 2), 64);
  Scratch<char> sums(static_cast<std::size_t>(g.m * g.n * kind.sum_bytes));
  GemmProblem half[] = {depths_of(kind, g, 0, depth), depths_of(kind, g, depth, depth)};
  half[1].c = sums.data(), half[1].ldc = g.n, half[1].add = false;
  const Cut cut = cut_of(kind, half[0], kind.row_step);
  const Index panels = ceil_div(g.n, kind.panel_columns), across = ceil_div(panels, cut.panels),
              blocks = ceil_div(g.m, cut.rows) * across;
  OwnCopies copies[] = {{kind, half[0]}, {kind, half[1]}};
  parallel_for_each(2 * blocks, here ? 2 * blocks : 1, [&](Index t) {
    const Index h = t / blocks, row = t % blocks / across * cut.rows, panel = t % blocks % across * cut.panels;
    kind.block(half[h], row, std::min(cut.rows, g.m - row), panel, std::min(panel + cut.panels, panels), copies[h]());
  });
  parallel_for(g.m, here ? g.m : std::max<Index>(1, kAddGrain / g.n), [&](Index begin, Index end) {
    if (kind.sum_bytes == 8)
      add_rows<double>(g, sums.data(), begin, end);
    else
      add_rows<float>(g, sums.data(), begin, end);
  });
}

}  // namespace heed::detail

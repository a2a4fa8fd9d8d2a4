// Splits a matrix product into tasks, and packs its right operand for all of them or for each.
// Above 400 lines: the ways to cut a product share their parts.
#include <algorithm>
#include <heed/core/check.hpp>
#include <heed/core/detail/gemm.hpp>
#include <heed/core/detail/profiler.hpp>
#include <heed/core/kernels/dispatch.hpp>
#include <heed/core/kernels/gemm.hpp>
#include <heed/core/kernels/gemm_bf16.hpp>
#include <heed/core/memory.hpp>
#include <heed/core/parallel.hpp>
#include <utility>

namespace heed {

namespace {

using kernels::GemmKind;
using kernels::GemmProblem;

// In multiply-adds. About 10 and 5 microseconds of one core.
constexpr Index kSerialWork = 1 << 20, kTaskWork = 1 << 19;
constexpr Index kTasks = 16;  // enough to share evenly among a few cores
// Where b is read in place, for few rows, its bytes take the time: as long as the multiply-adds above, and of a task.
constexpr Index kSerialBytes = 1 << 19, kTaskBytes = 200000;
// The same, and enough for two, where each task packs its part of a: the fewer, the less is packed.
constexpr Index kRepackTasks = 8, kFewTasks = 4;
constexpr Index kRepackWork = 1 << 24;          // of a task that packs its part of a, in multiply-adds
constexpr Index kBlockColumns = 256;            // of c: with its parts of a and b it stays in the second cache
constexpr Index kPackedBytes = Index{8} << 20;  // of b at a time
constexpr Index kPackGrain = 1 << 15;           // bytes of b that a task packs
constexpr Index kOwnRows = 128;                 // of a for each thread, from which on each packs b for itself,
constexpr Index kOwnBytes = Index{1} << 20;     // if that is not more than this
constexpr Index kAddGrain = 1 << 14;            // numbers that a task adds up
// Of products that are cut into halves of k, below.
constexpr Index kHalvedDepth = 512, kHalvedNumbers = 1 << 19;
// Of a strip, below.
constexpr Index kStripRows = 512, kStrips = 12, kStripPanels = 8;

Index ceil_div(Index a, Index b) { return (a + b - 1) / b; }
Index round_up(Index a, Index b) { return ceil_div(a, b) * b; }

bool bf16_values(const Gemm& g, const MatrixIn& x) {
  return x.dtype == DType::bfloat16 || (x.dtype == DType::float32 && g.products == DType::bfloat16);
}

const GemmKind& kind_of(const Gemm& g, bool few_rows) {
  const auto real = [](DType t) { return t == DType::float32 || t == DType::bfloat16; };
  const bool both_double = g.a.dtype == DType::float64 && g.b.dtype == DType::float64;
  require(both_double || (real(g.a.dtype) && real(g.b.dtype)), "gemm: a is ", name_of(g.a.dtype), " and b is ",
          name_of(g.b.dtype), "; both must be float64, or each float32 or bfloat16");
  const kernels::GemmTable& table = kernels::gemm_table();
  if (both_double) return table.float64;
  const bool both_bf16 = bf16_values(g, g.a) && bf16_values(g, g.b);
  const bool by_rows = few_rows && g.b.row != 1;  // which dots of neighbours in k do not serve
  const kernels::Bf16Table* dots = both_bf16 && !by_rows ? kernels::bf16_table() : nullptr;
  return dots != nullptr ? dots->product : table.float32;
}

// A profile hears of a product: what type's multiply-adds it is made of, and how many.
void count_product(const GemmKind& kind, Index m, Index n, Index k) {
  const kernels::Bf16Table* dots = kernels::bf16_table();
  const DType type = dots != nullptr && &kind == &dots->product ? DType::bfloat16
                     : kind.sum_bytes == 8                      ? DType::float64
                                                                : DType::float32;
  detail::count_flops(type, 2 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k));
}

const void* shifted(const MatrixIn& x, Index elements) {
  return static_cast<const char*>(x.data) + elements * static_cast<Index>(size_of(x.dtype));
}

// The product at a place of the batch.
GemmProblem problem_of(const Gemm& g, Index item) {
  const Gemm::Axis &outer = g.batch[0], &inner = g.batch[1];
  const Index i = item / inner.count, j = item % inner.count;
  const Index c_size = g.a.dtype == DType::float64 ? 8 : 4;
  return {.m = g.m,
          .n = g.n,
          .k = g.k,
          .a = shifted(g.a, i * outer.a + j * inner.a),
          .a_row = g.a.row,
          .a_column = g.a.column,
          .b = shifted(g.b, i * outer.b + j * inner.b),
          .b_row = g.b.row,
          .b_column = g.b.column,
          .a_bf16 = g.a.dtype == DType::bfloat16,
          .b_bf16 = g.b.dtype == DType::bfloat16,
          .round = g.products == DType::bfloat16,
          .c = static_cast<char*>(g.c) + (i * outer.c + j * inner.c) * c_size,
          .ldc = g.ldc,
          .c_row = 0,
          .c_column = 0,
          .alpha = g.alpha,
          .add = g.accumulate,
          .bias = g.bias};
}

// A matrix times a column, as a row times the transposed matrix: rows of c are then long, and nothing is packed.
Gemm transposed(Gemm g) {
  std::swap(g.m, g.n);
  std::swap(g.a, g.b);
  std::swap(g.a.row, g.a.column);
  std::swap(g.b.row, g.b.column);
  for (Gemm::Axis& axis : g.batch) std::swap(axis.a, axis.b);
  return g;
}

// Whether b is read as it lies, which does not round it. Row i of such a product is a function of row i of a alone,
// whatever m is. Sums of short rows of b cost more than packing it, once many rows of a share that.
bool has_few_rows(const Gemm& g) {
  const bool rounds = g.products == DType::bfloat16;
  if (rounds && g.b.dtype == DType::float32) return false;
  if (g.b.row == 1) return g.m <= kernels::kFewRowsAcross || g.m <= (g.k < 128 ? 8 : kernels::kFewRows);
  return g.b.column == 1 && g.m <= kernels::kFewRowsAcross && !(rounds && g.a.dtype == DType::float32);
}

// Bytes of b that a product of few rows reads.
Index few_bytes(const GemmKind& kind, const GemmProblem& g) { return g.n * g.k * (g.b_bf16 ? 2 : kind.sum_bytes); }

// Bytes that a product of few rows needs for a: none where that lies as it is read.
Index rows_bytes(const GemmKind& kind, const GemmProblem& g) {
  const bool as_read = g.m == 1 && g.a_column == 1 && (kind.few_bf16 ? g.a_bf16 : !g.a_bf16 && !g.round);
  return g.b_row != 1 || as_read ? 0 : g.m * round_up(g.k, 32) * kind.sum_bytes;  // no vector has more lanes
}

GemmProblem with_packed_rows(const GemmKind& kind, GemmProblem g, char* scratch) {
  if (rows_bytes(kind, g) == 0) return g;
  kind.pack_rows(g, scratch);
  g.a = scratch;
  return g;
}

// Whether each block copies its part of a, whose columns are runs.
bool packs_columns(const GemmProblem& g) { return g.a_row == 1 && g.a_column != 1; }

// How c is cut into tasks: blocks of rows by groups of panels, from the shape alone.
struct Cut {
  Index rows, panels;
};

// The product that is multiplied, and what becomes of its blocks.
struct Work {
  GemmProblem g;
  GemmFinish finish;
  Index column;  // of the whole result, where this part of it begins
};

// What `finish` will touch of these rows, and of the columns [column, column + n) of g, is fetched.
void fetch_beside(GemmProblem& g, const Work& w, Index row, Index rows, Index column, Index n) {
  for (int i = 0; i < GemmFinish::kMaxBeside; ++i) {
    const MatrixIn& x = w.finish.beside()[i];
    const Index size = static_cast<Index>(size_of(x.dtype));
    if (x.data != nullptr)
      g.ahead[i] = {shifted(x, row * x.row + w.column + column), x.row * size, rows, n * size, true};
  }
}

// Memory for blocks of a result that has none of its own: one for each thread.
ThreadScratch<char> block_scratch(const GemmKind& kind, const Work& w, const Cut& cut) {
  const Index columns = std::min(w.g.n, cut.panels * kind.panel_columns);
  return ThreadScratch<char>(w.g.c != nullptr ? 0 : std::min(cut.rows, w.g.m) * columns * kind.sum_bytes);
}

// Rows [row, row + rows) of panels [begin, end) of c, and what becomes of them.
void multiply_block(const GemmKind& kind, const Work& w, Index row, Index rows, Index begin, Index end,
                    const void* packed, char* scratch) {
  if (!w.finish) return kind.block(w.g, row, rows, begin, end, packed);
  GemmProblem g = w.g;
  const Index column = begin * kind.panel_columns, columns = std::min(g.n, end * kind.panel_columns) - column;
  if (g.c == nullptr) g.c = scratch, g.ldc = columns, g.c_row = row, g.c_column = column;
  fetch_beside(g, w, row, rows, column, columns);
  kind.block(g, row, rows, begin, end, packed);
  char* first = static_cast<char*>(g.c) + ((row - g.c_row) * g.ldc + column - g.c_column) * kind.sum_bytes;
  w.finish({first, g.ldc, row, rows, w.column + column, columns});
}

// All of c from all of b, on this thread.
void blocks_here(const GemmKind& kind, const Work& w, const void* packed) {
  const Cut cut{kind.block_rows, ceil_div(w.g.n, kind.panel_columns)};
  Scratch<char> scratch(
      static_cast<std::size_t>(w.g.c != nullptr ? 0 : std::min(cut.rows, w.g.m) * w.g.n * kind.sum_bytes));
  for (Index row = 0; row < w.g.m; row += cut.rows)
    multiply_block(kind, w, row, std::min(cut.rows, w.g.m - row), 0, cut.panels, packed, scratch.data());
}

// One product on this thread, with scratch of serial_bytes().
void multiply_serial(const GemmKind& kind, const Work& w, bool few_rows, char* scratch) {
  if (few_rows) return kind.few_rows(with_packed_rows(kind, w.g, scratch), 0, w.g.n);
  kind.pack(w.g, 0, ceil_div(w.g.n, kind.panel_columns), scratch);
  blocks_here(kind, w, scratch);
}

Index serial_bytes(const GemmKind& kind, const GemmProblem& g, bool few_rows) {
  return few_rows ? rows_bytes(kind, g) : static_cast<Index>(kind.packed_bytes(g));
}

Cut cut_of(const GemmKind& kind, const GemmProblem& g) {
  const Index all = ceil_div(g.n, kind.panel_columns);
  // Where each block packs its columns of a, that is seldom done twice: c is cut into rows first unless it is wide,
  // and small products into few tasks.
  const bool repacks = packs_columns(g), rows_first = repacks && 2 * g.m >= g.n;
  const Index most_panels = (rows_first ? 2 : 1) * kBlockColumns / kind.panel_columns, fewest_panels = repacks ? 1 : 4,
              fewest_rows = (repacks ? 12 : 4) * kind.row_step,
              tasks_wanted = repacks ? std::clamp(g.m * g.n * g.k / kRepackWork, kFewTasks, kRepackTasks) : kTasks;
  Cut cut{kind.block_rows, std::min<Index>(all, most_panels)};
  const auto tasks = [&] { return ceil_div(g.m, cut.rows) * ceil_div(all, cut.panels); };
  const auto work = [&] { return cut.rows * cut.panels * kind.panel_columns * g.k; };
  while (tasks() < tasks_wanted && work() >= 2 * kTaskWork) {
    const bool columns = cut.panels > fewest_panels, rows = cut.rows / 2 >= fewest_rows;
    if (columns && !(rows_first && rows))
      cut.panels = ceil_div(cut.panels, 2);
    else if (rows)
      cut.rows /= 2;
    else
      break;
  }
  // Even shares: no sliver at the end.
  cut.rows = round_up(ceil_div(g.m, ceil_div(g.m, cut.rows)), kind.row_step);
  cut.panels = ceil_div(all, ceil_div(all, cut.panels));
  return cut;
}

// All of c from all of b, shared among threads. packed(): b, as the thread that asks is to read it.
template <class Packed>
void blocks_parallel(const GemmKind& kind, const Work& w, const Packed& packed) {
  const GemmProblem& g = w.g;
  const Cut cut = cut_of(kind, g);
  const Index panels = ceil_div(g.n, kind.panel_columns), across = ceil_div(panels, cut.panels);
  ThreadScratch<char> scratch = block_scratch(kind, w, cut);
  parallel_for(ceil_div(g.m, cut.rows) * across, 1, [&](Index begin, Index end) {
    for (Index t = begin; t < end; ++t) {
      const Index row = t / across * cut.rows, panel = t % across * cut.panels;
      multiply_block(kind, w, row, std::min(cut.rows, g.m - row), panel, std::min(panel + cut.panels, panels), packed(),
                     scratch.mine());
    }
  });
}

// All of b, shared among threads.
void pack_parallel(const GemmKind& kind, const GemmProblem& g, Index panel_bytes, void* packed) {
  parallel_for(ceil_div(g.n, kind.panel_columns), std::max<Index>(1, kPackGrain / std::max<Index>(1, panel_bytes)),
               [&](Index begin, Index end) { kind.pack(g, begin, end, packed); });
}

// The columns [column, column + n) of a product.
GemmProblem columns_of(const GemmKind& kind, GemmProblem g, Index column, Index n) {
  const auto shift = [&](auto*& p, Index elements, Index size) {
    using Byte = std::conditional_t<std::is_const_v<std::remove_pointer_t<std::remove_reference_t<decltype(p)>>>,
                                    const char, char>;
    if (p != nullptr) p = static_cast<Byte*>(p) + elements * size;
  };
  const Index size = kind.sum_bytes;
  shift(g.b, column * g.b_column, g.b_bf16 ? 2 : size);
  shift(g.c, column, size);
  shift(g.bias, column, size);
  g.n = n;
  return g;
}

// The part [first, first + depth) of k of a product.
GemmProblem depths_of(const GemmKind& kind, GemmProblem g, Index first, Index depth) {
  const auto shifted_by = [&](const void* p, Index elements, bool bf16) -> const void* {
    return static_cast<const char*>(p) + elements * (bf16 ? 2 : kind.sum_bytes);
  };
  g.a = shifted_by(g.a, first * g.a_column, g.a_bf16), g.b = shifted_by(g.b, first * g.b_row, g.b_bf16);
  g.add = g.add || first > 0;
  if (first + depth < g.k) g.bias = nullptr;
  g.k = std::min(depth, g.k - first);
  return g;
}

// b as it lies in memory, if its rows or its columns are runs.
GemmProblem::Ahead source_of(const GemmKind& kind, const GemmProblem& g) {
  const Index size = g.b_bf16 ? 2 : kind.sum_bytes;
  if (g.b_column == 1) return {g.b, g.b_row * size, g.k, g.n * size};
  if (g.b_row == 1) return {g.b, g.b_column * size, g.n, g.k * size};
  return {};
}

// All rows of some columns of c, on this thread. `packed` has room for those columns and one part of k, and stays in
// the second cache; what comes next of b is fetched meanwhile.
void multiply_strip(const GemmKind& kind, const GemmProblem& g, char* packed) {
  const Index panels = ceil_div(g.n, kind.panel_columns), depth = std::max<Index>(1, kind.depth(g.k));
  for (Index first = 0; first == 0 || first < g.k; first += depth) {
    GemmProblem part = depths_of(kind, g, first, depth);
    kind.pack(part, 0, panels, packed);
    GemmProblem::Ahead next = {};
    if (first + depth < g.k) next = source_of(kind, depths_of(kind, g, first + depth, depth));
    for (Index row = 0; row < g.m; row += kind.block_rows) {
      const Index rows = std::min<Index>(kind.block_rows, g.m - row), begin = next.rows * row / g.m,
                  end = next.rows * (row + rows) / g.m;
      part.ahead[0] = {static_cast<const char*>(next.data) + begin * next.stride, next.stride, end - begin, next.bytes};
      kind.block(part, row, rows, 0, panels, packed);
    }
  }
}

// One product, shared among threads by columns: who computes a strip of c packs its part of b, a part of k at a time.
// For few rows that are read in place, where packing all of b first would take as long as a good part of the product.
bool is_for_strips(const GemmKind& kind, const GemmProblem& g) {
  return g.m <= kStripRows && ceil_div(g.n, kind.panel_columns) >= kStrips && !packs_columns(g);
}
void multiply_strips(const GemmKind& kind, const Work& w) {
  const Index all = ceil_div(w.g.n, kind.panel_columns), panels = std::min(kStripPanels, all / kStrips),
              columns = panels * kind.panel_columns;
  const Index depth = std::max<Index>(1, kind.depth(w.g.k));
  ThreadScratch<char> packed(
      static_cast<Index>(kind.packed_bytes(depths_of(kind, columns_of(kind, w.g, 0, columns), 0, depth))));
  ThreadScratch<char> results(w.g.c != nullptr ? 0 : w.g.m * columns * kind.sum_bytes);
  parallel_for(ceil_div(all, panels), 1, [&](Index begin, Index end) {
    for (Index t = begin; t < end; ++t) {
      const Index column = t * columns, n = std::min(columns, w.g.n - column);
      GemmProblem g = columns_of(kind, w.g, column, n);
      if (g.c == nullptr) g.c = results.mine(), g.ldc = n;
      multiply_strip(kind, g, packed.mine());
      if (w.finish) w.finish({g.c, g.ldc, 0, g.m, w.column + column, n});
    }
  });
}

// b's copy for each thread, packed when the thread first asks: little work beside many rows of a, while a product waits
// for what lies in the cache of another core.
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
  // Whether that pays where a thread multiplies so many rows.
  static bool pay(const GemmKind& kind, const GemmProblem& g, Index rows) {
    return rows >= kOwnRows && static_cast<Index>(kind.packed_bytes(g)) <= kOwnBytes;
  }

 private:
  const GemmKind& kind_;
  const GemmProblem& g_;
  ThreadScratch<char> copies_;
  Scratch<char> ready_;  // by slot
};

// One product, shared among threads: b is packed once, in parts of bounded size, then parts of c are computed.
void multiply_parallel(const GemmKind& kind, const Work& w) {
  const GemmProblem& whole = w.g;
  if (is_for_strips(kind, whole)) return multiply_strips(kind, w);
  if (threads() > 1 && OwnCopies::pay(kind, whole, whole.m / threads())) {
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

// The gradient of a weight is a sum over the rows of two activations, which lie in the caches of the threads that
// computed them. Such a product is the sum of two, of the halves of k, so that a thread reads what others wrote of a
// small result alone. By the shape and strides, as sums have another order then.
bool is_halved(const GemmProblem& g) {
  return packs_columns(g) && g.k >= kHalvedDepth && 4 * g.m * g.n <= g.k * (g.m + g.n) &&
         g.m * g.n * g.k > kSerialWork && g.k * g.n <= kHalvedNumbers;
}

template <class T>
void add_rows(const GemmProblem& g, const void* sums, Index begin, Index end) {
  for (Index i = begin; i < end; ++i) {
    T* c = static_cast<T*>(g.c) + i * g.ldc;
    const T* from = static_cast<const T*>(sums) + i * g.n;
    for (Index j = 0; j < g.n; ++j) c[j] += from[j];
  }
}

void multiply_halves(const GemmKind& kind, const GemmProblem& g, bool here) {
  const Index depth = round_up(ceil_div(g.k, 2), 64);
  Scratch<char> sums(static_cast<std::size_t>(g.m * g.n * kind.sum_bytes));
  GemmProblem half[] = {depths_of(kind, g, 0, depth), depths_of(kind, g, depth, depth)};
  half[1].c = sums.data(), half[1].ldc = g.n, half[1].add = false;
  const Cut cut = cut_of(kind, half[0]);
  const Index panels = ceil_div(g.n, kind.panel_columns), across = ceil_div(panels, cut.panels),
              blocks = ceil_div(g.m, cut.rows) * across;
  OwnCopies copies[] = {{kind, half[0]}, {kind, half[1]}};
  parallel_for(2 * blocks, here ? 2 * blocks : 1, [&](Index begin, Index end) {
    for (Index t = begin; t < end; ++t) {
      const Index h = t / blocks, row = t % blocks / across * cut.rows, panel = t % blocks % across * cut.panels;
      kind.block(half[h], row, std::min(cut.rows, g.m - row), panel, std::min(panel + cut.panels, panels), copies[h]());
    }
  });
  parallel_for(g.m, here ? g.m : std::max<Index>(1, kAddGrain / g.n), [&](Index begin, Index end) {
    if (kind.sum_bytes == 8)
      add_rows<double>(g, sums.data(), begin, end);
    else
      add_rows<float>(g, sums.data(), begin, end);
  });
}

// So many columns a task that it reads 200 kB of b: long runs, and no thread waits long for another's last task. A
// multiple of the three or four that are taken at once.
void few_parallel(const GemmKind& kind, const GemmProblem& g, const GemmFinish& finish = {}) {
  const Index column_bytes = std::max<Index>(1, few_bytes(kind, g) / g.n);
  const Index columns = round_up(std::max<Index>(1, kTaskBytes / column_bytes), 12);
  Scratch<char> rows(static_cast<std::size_t>(rows_bytes(kind, g)));
  const GemmProblem p = with_packed_rows(kind, g, rows.data());
  parallel_for(g.n, columns, [&](Index begin, Index end) {
    kind.few_rows(p, begin, end);
    if (finish) finish({static_cast<char*>(g.c) + begin * kind.sum_bytes, g.ldc, 0, g.m, begin, end - begin});
  });
}

// A result of few rows that is finished: by its columns.
void finish_few_rows(const GemmKind& kind, const Gemm& g, bool shared) {
  GemmProblem p = problem_of(g, 0);
  Scratch<char> scratch(static_cast<std::size_t>(g.c != nullptr ? 0 : g.m * g.n * kind.sum_bytes));
  if (g.c == nullptr) p.c = scratch.data(), p.ldc = g.n;
  if (shared) return few_parallel(kind, p, g.finish);
  Scratch<char> rows(static_cast<std::size_t>(rows_bytes(kind, p)));
  kind.few_rows(with_packed_rows(kind, p, rows.data()), 0, g.n);
  g.finish({p.c, p.ldc, 0, g.m, 0, g.n});
}

// gemm(); `here`: on this thread.
void multiply(const Gemm& given, bool here) {
  const bool as_row = given.n == 1 && given.m > 1 && given.ldc == 1 && !given.bias && !given.finish;
  const Gemm g = as_row ? transposed(given) : given;
  const bool few_rows = has_few_rows(g);
  const GemmKind& kind = kind_of(g, few_rows);
  const Index items = g.batch[0].count * g.batch[1].count;
  require(!g.finish || items == 1, "gemm: finish is of a product without batch, and this has ", items);
  if (g.m <= 0 || g.n <= 0 || items <= 0) return;
  count_product(kind, items * g.m, g.n, g.k);
  const Index work = g.m * g.n * std::max<Index>(g.k, 1);
  const bool takes_long = work > kSerialWork || (few_rows && few_bytes(kind, problem_of(g, 0)) > kSerialBytes);
  const bool shared = !here && takes_long && (items == 1 || work > kSerialWork * 8);
  if (few_rows && g.finish) return finish_few_rows(kind, g, shared);
  if (items == 1 && !few_rows && !g.finish && is_halved(problem_of(g, 0)))
    return multiply_halves(kind, problem_of(g, 0), here);
  if (shared) {
    for (Index i = 0; i < items; ++i) {
      if (few_rows)
        few_parallel(kind, problem_of(g, i));
      else
        multiply_parallel(kind, {problem_of(g, i), g.finish, 0});
    }
    return;
  }
  ThreadScratch<char> scratch(serial_bytes(kind, problem_of(g, 0), few_rows));
  parallel_for(items, here ? items : std::max<Index>(1, kTaskWork / work), [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i)
      multiply_serial(kind, {problem_of(g, i), g.finish, 0}, few_rows, scratch.mine());
  });
}

}  // namespace

void gemm(const Gemm& g) { multiply(g, false); }
void gemm_here(const Gemm& g) { multiply(g, true); }

// ---- Packed once ----

PackedMatrix::PackedMatrix(const MatrixIn& b, Index k, Index n, DType a, DType products)
    : k_(k), n_(n), a_(a), b_(b.dtype), products_(products) {
  const Gemm g{.m = 1, .n = n, .k = k, .a = {.dtype = a}, .b = b, .products = products};
  kind_ = &kind_of(g, false);
  const GemmProblem problem = problem_of(g, 0);
  const Index bytes = static_cast<Index>(kind_->packed_bytes(problem));
  packed_ = Tensor::empty({(bytes + 3) / 4});
  pack_parallel(*kind_, problem, bytes / std::max<Index>(1, ceil_div(n, kind_->panel_columns)), packed_.raw());
}

Gemm PackedMatrix::whole(const Gemm& g) const {
  require(g.a.dtype == a_, "gemm: a is ", name_of(g.a.dtype), " and b was packed for ", name_of(a_));
  Gemm all = g;
  all.n = n_, all.k = k_, all.b = {.dtype = b_}, all.products = products_;
  return all;
}

void PackedMatrix::multiply_here(const Gemm& g) const {
  if (g.m > 0 && n_ > 0) blocks_here(*kind_, {problem_of(whole(g), 0), g.finish, 0}, packed_.raw());
}

void PackedMatrix::multiply(const Gemm& g) const {
  count_product(*kind_, g.m, n_, k_);
  if (g.m * n_ * k_ <= kSerialWork) return multiply_here(g);
  blocks_parallel(*kind_, {problem_of(whole(g), 0), g.finish, 0}, [&] { return packed_.raw(); });
}

Index gemm_row_step(DType type) {
  const kernels::GemmTable& table = kernels::gemm_table();
  return (type == DType::float64 ? table.float64 : table.float32).row_step;
}

}  // namespace heed

// Matrix products of few rows, such as those of one token: b is read once, in place, and reading it takes most of the
// time.
#include <algorithm>
#include <heed/core/gemm/ways.hpp>

namespace heed::detail {
namespace {

// Bytes of b up to which a product is not split into tasks, and bytes per task. Reading them takes about as long as
// kSerialWork and kTaskWork.
constexpr Index kSerialBytes = 1 << 19, kTaskBytes = 200000;

// Bytes of b that a product of few rows reads.
Index few_bytes(const GemmKind& kind, const GemmProblem& g) {
  if (g.b_blocks == kernels::Blocks::none) return g.n * g.k * b_size(kind, g);
  const DType type = g.b_blocks == kernels::Blocks::q8_0   ? DType::q8_0
                     : g.b_blocks == kernels::Blocks::q4_0 ? DType::q4_0
                                                           : DType::q4_1;
  return g.n * static_cast<Index>(bytes_of(type, g.k));
}

// out: the rows of a as float32.
void widen_rows(const GemmProblem& g, float* out) {
  for (Index i = 0; i < g.m; ++i)
    for (Index p = 0; p < g.k; ++p) {
      const Index at = i * g.a_row + p * g.a_column;
      *out++ =
          g.a_bf16 ? static_cast<float>(static_cast<const bfloat16*>(g.a)[at]) : static_cast<const float*>(g.a)[at];
    }
}

// g with a packed into scratch, unless a is read in place.
GemmProblem with_packed_rows(const GemmKind& kind, GemmProblem g, char* scratch) {
  if (few_rows_bytes(kind, g) == 0) return g;
  if (g.b_blocks != kernels::Blocks::none) {
    widen_rows(g, reinterpret_cast<float*>(scratch));
    g.a = scratch, g.a_row = g.k, g.a_column = 1, g.a_bf16 = false;
    return g;
  }
  kind.pack_rows(g, scratch);
  g.a = scratch;
  return g;
}

}  // namespace

// Whether b is read in place. This is not possible if b must be rounded. The bits of row i of such a product depend on
// row i of a alone, not on m. If k is short, sums along k cost more than packing b for many rows of a.
bool has_few_rows(const Gemm& g) {
  const bool rounds = g.products == DType::bfloat16;
  if (is_quantized(g.b.dtype)) return !rounds && g.b.row == 1 && g.m <= kernels::kFewRows;
  if (rounds && g.b.dtype == DType::float32) return false;
  if (g.b.row == 1) return g.m <= kernels::kFewRowsAcross || g.m <= (g.k < 128 ? 8 : kernels::kFewRows);
  return g.b.column == 1 && g.m <= kernels::kFewRowsAcross && !(rounds && g.a.dtype == DType::float32);
}

bool reads_long(const GemmKind& kind, const GemmProblem& g) { return few_bytes(kind, g) > kSerialBytes; }

Index few_rows_bytes(const GemmKind& kind, const GemmProblem& g) {
  if (g.b_blocks != kernels::Blocks::none) return !g.a_bf16 && g.a_column == 1 ? 0 : g.m * g.k * kind.sum_bytes;
  const bool as_read = g.m == 1 && g.a_column == 1 && kind.few_in_place == a_size(kind, g);
  return g.b_row != 1 || as_read ? 0 : g.m * round_up(g.k, 32) * kind.sum_bytes;  // 32: no vector has more lanes
}

// A task reads about kTaskBytes of b: runs are long, and no thread waits long for the last task of another. The number
// of columns per task is a multiple of 24, because kernels compute 2, 3, 4 or 8 columns at once.
void multiply_few_rows(const GemmKind& kind, const Work& w, bool here) {
  GemmProblem g = w.g;
  const Index column_bytes = std::max<Index>(1, few_bytes(kind, g) / g.n);
  const Index columns = round_up(std::max<Index>(1, kTaskBytes / column_bytes), 24);
  Scratch<char> result(static_cast<std::size_t>(g.c != nullptr ? 0 : g.m * g.n * kind.sum_bytes)),
      rows(static_cast<std::size_t>(few_rows_bytes(kind, g)));
  if (g.c == nullptr) g.c = result.data(), g.ldc = g.n;
  g = with_packed_rows(kind, g, rows.data());
  parallel_for(g.n, here ? g.n : columns, [&](Index begin, Index end) {
    kind.few_rows(g, begin, end);
    if (w.finish) w.finish({static_cast<char*>(g.c) + begin * kind.sum_bytes, g.ldc, 0, g.m, begin, end - begin});
  });
}

void multiply_few_rows_here(const GemmKind& kind, const GemmProblem& g, char* scratch) {
  kind.few_rows(with_packed_rows(kind, g, scratch), 0, g.n);
}

}  // namespace heed::detail

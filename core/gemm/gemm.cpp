// Chooses the algorithm for each matrix product from its shape: see ways.hpp.
#include <algorithm>
#include <heed/core/check.hpp>
#include <heed/core/gemm/ways.hpp>
#include <heed/core/kernels/dispatch/dispatch.hpp>
#include <heed/core/kernels/peak.hpp>
#include <heed/core/profiler.hpp>
#include <utility>

namespace heed {

namespace {

using namespace detail;

// Whether the values of an operand are bfloat16 when they are multiplied.
bool bf16_values(const Gemm& g, const MatrixIn& x) {
  const bool rounds = x.dtype == DType::float32 || is_quantized(x.dtype);
  return x.dtype == DType::bfloat16 || (rounds && g.products == DType::bfloat16);
}

const GemmKind& kind_of(const Gemm& g, bool few_rows) {
  const auto real = [](DType t) { return t == DType::float32 || t == DType::bfloat16; };
  const bool both_double = g.a.dtype == DType::float64 && g.b.dtype == DType::float64;
  require(both_double || (real(g.a.dtype) && (real(g.b.dtype) || is_quantized(g.b.dtype))), "gemm: a is ",
          name_of(g.a.dtype), " and b is ", name_of(g.b.dtype),
          "; both must be float64, or each float32 or bfloat16, or b quantized");
  const kernels::GemmTable& table = kernels::gemm_table();
  if (both_double) return table.float64;
  const bool both_bf16 = bf16_values(g, g.a) && bf16_values(g, g.b);
  const bool by_rows = few_rows && g.b.row != 1;  // dot products of pairs need b contiguous along k
  return both_bf16 && !by_rows ? kernels::gemm_bf16() : table.float32;
}

// Reports the operations of a product to the profile, by the dtype in which the machine multiplies.
void count_product(const GemmKind& kind, Index m, Index n, Index k) {
  const bool dots = &kind == &kernels::gemm_bf16() && kernels::bf16_peak_loop() != nullptr;
  const DType type = dots ? DType::bfloat16 : kind.sum_bytes == 8 ? DType::float64 : DType::float32;
  detail::count_flops(type, 2 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k));
}

kernels::Blocks blocks_of(DType type) {
  switch (type) {
    case DType::q8_0: return kernels::Blocks::q8_0;
    case DType::q4_0: return kernels::Blocks::q4_0;
    case DType::q4_1: return kernels::Blocks::q4_1;
    default: return kernels::Blocks::none;
  }
}

void check_blocks(const Gemm& g) {
  if (!is_quantized(g.b.dtype)) return;
  const Index along = g.b.row == 1 ? g.k : g.n, across = g.b.row == 1 ? g.b.column : g.b.row;
  require((g.b.row == 1 || g.b.column == 1) && along % kBlockNumbers == 0 && across % kBlockNumbers == 0 &&
              g.batch[0].b == 0 && g.batch[1].b == 0,
          "gemm: b is [", g.k, ", ", g.n, "] ", g.b.dtype, " with strides ", g.b.row, " and ", g.b.column,
          "; it must have whole rows of blocks, the same for the whole batch");
}

// Product number `item` of the batch.
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
          .c = static_cast<char*>(g.c) + (i * outer.c + j * inner.c) * c_size,
          .ldc = g.ldc,
          .c_row = 0,
          .c_column = 0,
          .alpha = g.alpha,
          .add = g.accumulate,
          .bias = g.bias,
          .b_blocks = blocks_of(g.b.dtype)};
}

// A matrix times a column, as a row times the transposed matrix. The row of c is then long, and nothing is packed.
Gemm transposed(Gemm g) {
  std::swap(g.m, g.n);
  std::swap(g.a, g.b);
  std::swap(g.a.row, g.a.column);
  std::swap(g.b.row, g.b.column);
  for (Gemm::Axis& axis : g.batch) std::swap(axis.a, axis.b);
  return g;
}

// gemm(), or with `here` gemm_here().
void multiply(const Gemm& given, bool here) {
  check_blocks(given);
  const bool as_row =
      given.n == 1 && given.m > 1 && given.ldc == 1 && !given.bias && !given.finish && !is_quantized(given.b.dtype);
  const Gemm g = as_row ? transposed(given) : given;
  const bool few_rows = has_few_rows(g);
  const GemmKind& kind = kind_of(g, few_rows);
  const Index items = g.batch[0].count * g.batch[1].count;
  require(!g.finish || items == 1, "gemm: finish is given for a batch of ", items, "; the batch must be 1");
  if (g.m <= 0 || g.n <= 0 || items <= 0) return;
  count_product(kind, items * g.m, g.n, g.k);
  const auto item = [&](Index i) { return Work{problem_of(g, i), g.finish, 0}; };
  const Work first = item(0);
  const Index work = g.m * g.n * std::max<Index>(g.k, 1);
  const bool takes_long = work > kSerialWork || (few_rows && reads_long(kind, first.g));
  const bool shared = !here && takes_long && (items == 1 || work > kSerialWork * 8);
  if (items == 1 && !few_rows && !g.finish && is_halved(first.g)) return multiply_halves(kind, first.g, here);
  if (few_rows && g.finish) return multiply_few_rows(kind, first, !shared);
  if (shared) {
    for (Index i = 0; i < items; ++i) {
      const Work w = item(i);
      if (few_rows)
        multiply_few_rows(kind, w, false);
      else
        is_for_strips(kind, w.g) ? multiply_strips(kind, w) : multiply_blocks(kind, w);
    }
    return;
  }
  ThreadScratch<char> scratch(few_rows ? few_rows_bytes(kind, first.g)
                                       : static_cast<Index>(kind.packed_bytes(first.g)));
  parallel_for_each(items, here ? items : std::max<Index>(1, kTaskWork / work), [&](Index i) {
    const Work w = item(i);
    if (few_rows) {
      multiply_few_rows_here(kind, w.g, scratch.mine());
    } else {
      kind.pack(w.g, 0, ceil_div(w.g.n, kind.panel_columns), scratch.mine());
      multiply_blocks(kind, w, scratch.mine(), true);
    }
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
  require(g.a.dtype == a_, "gemm: a is ", name_of(g.a.dtype), " and b was packed for ", name_of(a_),
          "; the dtypes must be the same");
  Gemm all = g;
  all.n = n_, all.k = k_, all.b = {.dtype = b_}, all.products = products_;
  return all;
}

void PackedMatrix::multiply_here(const Gemm& g) const {
  if (g.m > 0 && n_ > 0) multiply_blocks(*kind_, {problem_of(whole(g), 0), g.finish, 0}, packed_.raw(), true);
}

void PackedMatrix::multiply(const Gemm& g) const {
  count_product(*kind_, g.m, n_, k_);
  if (g.m * n_ * k_ <= kSerialWork) return multiply_here(g);
  multiply_blocks(*kind_, {problem_of(whole(g), 0), g.finish, 0}, packed_.raw(), false);
}

Index gemm_row_step(DType type) {
  const kernels::GemmTable& table = kernels::gemm_table();
  return (type == DType::float64 ? table.float64 : table.float32).row_step;
}

}  // namespace heed

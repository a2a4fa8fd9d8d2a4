// The four algorithms for matrix products, from which gemm.cpp chooses by the shape, and the helpers that they
// share. A product is split by its shape and strides alone, so its bits are the same at any number of threads.
#pragma once
#include <heed/core/gemm/gemm.hpp>
#include <heed/core/kernels/gemm/gemm.hpp>
#include <heed/core/memory.hpp>
#include <heed/core/parallel.hpp>

namespace heed::detail {

using kernels::GemmKind;
using kernels::GemmProblem;

// Multiply-adds up to which a product is not split into tasks, and multiply-adds per task: about 10 and 5 microseconds
// of one core.
inline constexpr Index kSerialWork = 1 << 20, kTaskWork = 1 << 19;

inline Index ceil_div(Index a, Index b) { return (a + b - 1) / b; }
inline Index round_up(Index a, Index b) { return ceil_div(a, b) * b; }

// The address of x.data plus this number of elements.
inline const void* shifted(const MatrixIn& x, Index elements) {
  return static_cast<const char*>(x.data) + static_cast<Index>(bytes_of(x.dtype, elements));
}

// A product, or some columns of one, and the function that is called for its blocks.
struct Work {
  GemmProblem g;
  GemmFinish finish;
  Index column;  // column of the whole result at which g begins
};

// Bytes per element of a and of b.
inline Index a_size(const GemmKind& kind, const GemmProblem& g) { return g.a_bf16 ? 2 : kind.sum_bytes; }
// Of a b that is not quantized.
inline Index b_size(const GemmKind& kind, const GemmProblem& g) { return g.b_bf16 ? 2 : kind.sum_bytes; }

// The product for columns [column, column + n) of the result, and for the part [first, first + depth) of k.
GemmProblem columns_of(const GemmKind& kind, GemmProblem g, Index column, Index n);
GemmProblem depths_of(const GemmKind& kind, GemmProblem g, Index first, Index depth);

// Whether each block packs its part of a: the columns of a are contiguous, and its rows are not.
inline bool packs_columns(const GemmProblem& g) { return g.a_row == 1 && g.a_column != 1; }

// ---- Blocks: all of b is packed, once or by each thread for itself; then blocks of c are computed ----

void multiply_blocks(const GemmKind& kind, const Work& w);
// With b packed already. `here`: on the calling thread.
void multiply_blocks(const GemmKind& kind, const Work& w, const void* packed, bool here);
// Packs all of b in parallel. panel_bytes: size of a packed panel.
void pack_parallel(const GemmKind& kind, const GemmProblem& g, Index panel_bytes, void* packed);

// ---- Halves of k, for gradients of weights: the sum of two products ----

bool is_halved(const GemmProblem& g);
void multiply_halves(const GemmKind& kind, const GemmProblem& g, bool here);

// ---- Strips, for some rows by many columns: each task packs its columns of b ----

bool is_for_strips(const GemmKind& kind, const GemmProblem& g);
void multiply_strips(const GemmKind& kind, const Work& w);

// ---- Few rows: b is read in place ----

bool has_few_rows(const Gemm& g);
// Whether reading b takes long enough to split it into tasks.
bool reads_long(const GemmKind& kind, const GemmProblem& g);
void multiply_few_rows(const GemmKind& kind, const Work& w, bool here);
// On the calling thread, into c. `scratch` has few_rows_bytes(); 0 if a is read in place.
Index few_rows_bytes(const GemmKind& kind, const GemmProblem& g);
void multiply_few_rows_here(const GemmKind& kind, const GemmProblem& g, char* scratch);

}  // namespace heed::detail

// The ways to multiply, between which core/gemm.cpp chooses by the shape: what they share, and who may call them. A
// product is cut by its shape and strides alone, so that its bits are the same at any number of threads.
#pragma once
#include <algorithm>
#include <heed/core/detail/gemm.hpp>
#include <heed/core/kernels/gemm.hpp>
#include <heed/core/memory.hpp>
#include <heed/core/parallel.hpp>

namespace heed::detail {

using kernels::GemmKind;
using kernels::GemmProblem;

// In multiply-adds: about 10 and 5 microseconds of one core.
inline constexpr Index kSerialWork = 1 << 20, kTaskWork = 1 << 19;

inline Index ceil_div(Index a, Index b) { return (a + b - 1) / b; }
inline Index round_up(Index a, Index b) { return ceil_div(a, b) * b; }

inline const void* shifted(const MatrixIn& x, Index elements) {
  return static_cast<const char*>(x.data) + elements * static_cast<Index>(size_of(x.dtype));
}

// The product that is multiplied, and what becomes of its blocks.
struct Work {
  GemmProblem g;
  GemmFinish finish;
  Index column;  // of the whole result, where this part of it begins
};

// The columns [column, column + n) of a product, and the part [first, first + depth) of its k.
GemmProblem columns_of(const GemmKind& kind, GemmProblem g, Index column, Index n);
GemmProblem depths_of(const GemmKind& kind, GemmProblem g, Index first, Index depth);

// Whether each block copies its part of a, whose columns are runs.
inline bool packs_columns(const GemmProblem& g) { return g.a_row == 1 && g.a_column != 1; }

// ---- All of b is packed, once or by each thread for itself; then blocks of c are computed ----

void multiply_blocks(const GemmKind& kind, const Work& w);
// With b packed already; `here`: on this thread.
void multiply_blocks(const GemmKind& kind, const Work& w, const void* packed, bool here);
// All of b, shared among threads. panel_bytes: of a packed panel.
void pack_parallel(const GemmKind& kind, const GemmProblem& g, Index panel_bytes, void* packed);

// ---- Gradients of weights: the sum of two products, of the halves of k ----

bool is_halved(const GemmProblem& g);
void multiply_halves(const GemmKind& kind, const GemmProblem& g, bool here);

// ---- Some rows by many columns: each task packs its columns of b ----

bool is_for_strips(const GemmKind& kind, const GemmProblem& g);
void multiply_strips(const GemmKind& kind, const Work& w);

// ---- Few rows: b is read as it lies ----

bool has_few_rows(const Gemm& g);
// Whether its reading alone takes long enough to be shared.
bool reads_long(const GemmKind& kind, const GemmProblem& g);
void multiply_few_rows(const GemmKind& kind, const Work& w, bool here);
// On this thread, into c, with scratch of few_rows_bytes(): 0 where a lies as it is read.
Index few_rows_bytes(const GemmKind& kind, const GemmProblem& g);
void multiply_few_rows_here(const GemmKind& kind, const GemmProblem& g, char* scratch);

}  // namespace heed::detail

// What the driver of matrix products (core/gemm.cpp) asks of a level. Strides count elements.
#pragma once
#include <stddef.h>

namespace heed::kernels {

// c[m, n] = alpha * a[m, k] b[k, n] (+ c) + bias[n]; bias may be null.
struct GemmProblem {
  long m, n, k;
  const void* a;
  long a_row, a_column;
  const void* b;
  long b_row, b_column;
  bool a_bf16, b_bf16;
  void* c;
  long ldc;
  long c_row, c_column;  // of the product, what lies first in c: the memory may be that of a block
  double alpha;
  bool add;
  const void* bias;
  // What comes to the cache while the last part of k is multiplied: so many rows of so many bytes, a stride of bytes
  // apart, which will be read or written next.
  struct Ahead {
    const void* data;
    long stride, rows, bytes;
    bool write = false;
  } ahead[3] = {};
};

// One way to multiply. b is packed in panels of `panel_columns`, a multiple of the vector; the last is padded with 0.
struct GemmKind {
  long panel_columns;
  long block_rows;        // most rows of a call of `block`
  long row_step;          // of the tile: blocks are best multiples of it
  long sum_bytes;         // of an element of c
  long (*depth)(long k);  // of the equal parts of k, one after another, in which sums go to c; the last may be less
  size_t (*packed_bytes)(const GemmProblem&);
  // Packs the panels [begin, end) of all of b.
  void (*pack)(const GemmProblem&, long begin, long end, void* packed);
  // Computes rows [row, row + rows) of the panels [begin, end) of c.
  void (*block)(const GemmProblem&, long row, long rows, long begin, long end, const void* packed);
  // Without packing, columns [begin, end), for few rows: b_row is 1, m at most kFewRows and a as pack_rows gives it, or
  // b_column is 1 and m at most kFewRowsAcross.
  void (*few_rows)(const GemmProblem&, long begin, long end);
  // out, m rows of k, to whole vectors: a, as few_rows reads it.
  void (*pack_rows)(const GemmProblem&, void* out);
  // One row that is dense needs no packing where its elements have so many bytes; 0: it always does.
  long few_in_place;
};
inline constexpr long kFewRows = 32, kFewRowsAcross = 4;

struct GemmTable {
  GemmKind float32;  // operands float32 or bf16
  GemmKind float64;  // operands float64
  // Operands bf16, or float32 that is rounded, multiplied in pairs; few_rows: b is bf16, and b_row is 1.
  GemmKind bf16;
};

const GemmTable& gemm_table();  // of the level that runs
const GemmKind& gemm_bf16();    // its bf16, by the machine's instruction for pairs where the level has it

}  // namespace heed::kernels

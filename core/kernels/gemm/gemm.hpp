// The interface between the driver of matrix products (core/gemm/gemm.cpp) and the kernels of a level. Strides count
// elements.
#pragma once
#include <stddef.h>

namespace heed::kernels {

// Quantized types of b: see core/quantized.hpp for their blocks.
enum class Blocks : int { none, q8_0, q4_0, q4_1 };

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
  long c_row, c_column;  // row and column of the product at which c begins: c may hold only a block
  double alpha;
  bool add;
  const void* bias;
  // Memory that will be read or written next: `rows` rows of `bytes` bytes, `stride` bytes apart. It is prefetched
  // while the last block of k is multiplied.
  struct Ahead {
    const void* data;
    long stride, rows, bytes;
    bool write = false;
  } ahead[3] = {};
  // If b is quantized: b_row or b_column is 1, along which there are blocks of 32 numbers; the other stride is a
  // multiple of 32. b is the address of a block, and the product's b begins at number b_first from there.
  Blocks b_blocks = Blocks::none;
  long b_first = 0;
};

// One kind of product. b is packed in panels of `panel_columns`, a multiple of the vector; the last is padded with 0.
struct GemmKind {
  long panel_columns;
  long block_rows;        // max rows per call of `block`
  long row_step;          // rows of the register tile; the rows of a block should be a multiple
  long sum_bytes;         // of an element of c
  long (*depth)(long k);  // numbers of k per block; sums are stored to c after each block; the last may be smaller
  size_t (*packed_bytes)(const GemmProblem&);
  // Packs the panels [begin, end) of all of b.
  void (*pack)(const GemmProblem&, long begin, long end, void* packed);
  // Computes rows [row, row + rows) of the panels [begin, end) of c.
  void (*block)(const GemmProblem&, long row, long rows, long begin, long end, const void* packed);
  // Computes columns [begin, end) without packing b, for few rows. Either b_row is 1, m is at most kFewRows and a is
  // packed by pack_rows, or b_column is 1 and m is at most kFewRowsAcross. If b is quantized, b_row is 1, m is at most
  // kFewRows, and a has contiguous rows of float32.
  void (*few_rows)(const GemmProblem&, long begin, long end);
  // Packs a as few_rows reads it: out holds m rows of k, padded to whole vectors.
  void (*pack_rows)(const GemmProblem&, void* out);
  // The element size in bytes with which a single dense row of a needs no packing; 0: it always needs packing.
  long few_in_place;
};
inline constexpr long kFewRows = 32, kFewRowsAcross = 4;

struct GemmTable {
  GemmKind float32;  // operands float32 or bf16
  GemmKind float64;  // operands float64
  // Operands bf16, or float32 that is rounded, multiplied in pairs. few_rows: b is bf16, and b_row is 1.
  GemmKind bf16;
};

const GemmTable& gemm_table();  // for the level in use
const GemmKind& gemm_bf16();    // the bf16 kind, by the machine's instruction for pairs if the level has it

}  // namespace heed::kernels

// The kernel of embedding's derivative.
#pragma once
#include <stdint.h>

namespace heed::kernels {

// dweight[indices[i]] += dy[i] for i = 0, 1, ..., n - 1. Rows whose index is `skip` are left out.
template <class T>
struct EmbeddingGradient {
  T* dweight;              // [vocabulary, d]
  const T* dy;             // [n, d]
  const int32_t* indices;  // [n]
  int64_t n, d, skip;
};

struct EmbeddingTable {
  // Columns [begin, end).
  void (*f32)(const EmbeddingGradient<float>& x, int64_t begin, int64_t end);
  void (*f64)(const EmbeddingGradient<double>& x, int64_t begin, int64_t end);
};

const EmbeddingTable& embedding_table();  // for the level in use

}  // namespace heed::kernels

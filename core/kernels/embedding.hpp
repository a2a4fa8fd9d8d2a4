// The kernel of embedding's derivative.
#pragma once
#include <stdint.h>

namespace heed::kernels {

struct EmbeddingTable {
  // dweight[indices[i]][begin, end) += dy[i][begin, end) for i = 0, 1, ..., n - 1. Both have rows of d elements. Rows
  // whose index is `skip` are left out.
  void (*f32)(float* dweight, const float* dy, const int32_t* indices, int64_t n, int64_t d, int64_t begin, int64_t end,
              int64_t skip);
  void (*f64)(double* dweight, const double* dy, const int32_t* indices, int64_t n, int64_t d, int64_t begin,
              int64_t end, int64_t skip);
};

const EmbeddingTable& embedding_table();  // for the level in use

}  // namespace heed::kernels

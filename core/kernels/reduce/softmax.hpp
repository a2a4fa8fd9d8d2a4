// Softmax and log-softmax, along contiguous rows and down columns.
#pragma once
#include <stdint.h>

#include "../dispatch/dispatch.hpp"

namespace heed::kernels {

// Columns [0, columns) of a matrix of n rows, `stride` elements apart.
struct SoftmaxColumns {
  int64_t stride, n, columns;
};

template <class T>
struct SoftmaxKernels {
  // y = softmax(x) (or its logarithm) along each of the rows of n values, n > 0.
  void (*rows)(bool log, const T* x, int64_t rows, int64_t n, T* y);
  // The same down columns.
  void (*columns)(bool log, const T* x, const SoftmaxColumns& of, T* y);
  // dx = (or +=, if accumulate) the derivative, from the result y.
  void (*rows_backward)(bool log, const T* y, const T* dy, int64_t rows, int64_t n, T* dx, bool accumulate);
  void (*columns_backward)(bool log, const T* y, const T* dy, const SoftmaxColumns& of, T* dx, bool accumulate);
};

using SoftmaxTable = FloatTable<SoftmaxKernels>;
const SoftmaxTable& softmax_table();  // for the level in use

}  // namespace heed::kernels

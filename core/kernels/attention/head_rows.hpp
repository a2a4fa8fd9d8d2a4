// Tensors of attention as a pointer and strides.
#pragma once
#include <stddef.h>
#include <stdint.h>

namespace heed::kernels {

// A tensor [batch, head, row, width]; strides in elements, the last axis has stride 1.
template <class T>
struct HeadRows {
  T* data;
  int64_t batch, head, row;
};

}  // namespace heed::kernels

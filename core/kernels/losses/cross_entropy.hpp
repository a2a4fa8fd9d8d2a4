// Kernels of cross_entropy. Rows of `classes` logits are contiguous. Rows whose target is ignored have loss 0 and
// gradient 0.
#pragma once
#include <stdint.h>

#include "../dispatch/dispatch.hpp"

namespace heed::kernels {

template <class T>
struct CrossEntropy {
  int64_t classes;
  int64_t ignore_index;
  T smoothing;      // of the labels
  const T* weight;  // [classes]; null: every class has weight 1
  T weight_sum;     // sum over the classes
};

// dlogits = (or +=, if `accumulate`) the gradient by the logits, where dy[i * dy_stride] * scale is the gradient of the
// loss of row i. dlogits may be the logits.
template <class T>
struct CrossEntropyGradient {
  const T* dy;
  int64_t dy_stride;
  T scale;
  T* dlogits;
  bool accumulate;
};

template <class T>
struct CrossEntropyKernels {
  // loss [rows], and for backward the logarithm of each row's sum of exponentials as two terms, lse [rows, 2].
  void (*forward)(const CrossEntropy<T>& c, const T* logits, const int32_t* targets, T* loss, T* lse, int64_t rows);
  void (*backward)(const CrossEntropy<T>& c, const T* logits, const int32_t* targets, const T* lse,
                   CrossEntropyGradient<T> d, int64_t rows);
};

using CrossEntropyTable = FloatTable<CrossEntropyKernels>;
const CrossEntropyTable& cross_entropy_table();  // for the level in use

}  // namespace heed::kernels

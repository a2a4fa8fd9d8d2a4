// Kernels of losses that are functions of one element of x and one of the target t.
#pragma once
#include <stdint.h>

#include "../dispatch/dispatch.hpp"

namespace heed::kernels {

enum class Pointwise { mse, l1, huber, binary_cross_entropy, kl, kl_log };

template <class T>
struct PointwiseInputs {
  const T* x;
  const T* t;
  const T* weight;      // of binary_cross_entropy; null: all are 1
  const T* pos_weight;  // the same
  T delta;              // of huber
};

// dx and dt, either of which may be null, where dy[i * dy_stride] * scale is the gradient of element i's loss.
template <class T>
struct PointwiseGradients {
  const T* dy;
  int64_t dy_stride;  // 0 or 1
  T scale;
  T* dx;
  bool accumulate_dx;
  T* dt;
  bool accumulate_dt;
};

template <class T>
struct PointwiseKernels {
  // The losses of n elements, and their sum.
  void (*each)(Pointwise loss, const PointwiseInputs<T>& a, int64_t n, T* y);
  double (*sum)(Pointwise loss, const PointwiseInputs<T>& a, int64_t n);
  void (*backward)(Pointwise loss, const PointwiseInputs<T>& a, int64_t n, PointwiseGradients<T> d);
};

using PointwiseTable = FloatTable<PointwiseKernels>;
const PointwiseTable& pointwise_table();  // for the level in use

}  // namespace heed::kernels

// Kernels of layer_norm and rms_norm, on `rows` contiguous rows of n >= 1 elements.
#pragma once
#include <stdint.h>

#include "../dispatch/dispatch.hpp"

namespace heed::kernels {

// y = weight * normal + bias, where normal = (x - mean - rest) * rstd. weight and bias [n] may be null. mean, rest and
// rstd [rows] are written for backward; mean and rest are null for rms_norm. The mean of the row is mean + rest: `rest`
// is the rounding error of `mean`, which may be as large as the deviations. `normal`, in bf16, may be null, and is null
// for double.
template <class T>
struct NormForward {
  const T* x;
  const T* weight;
  const T* bias;
  T* y;
  uint16_t* normal;
  T* mean;
  T* rest;
  T* rstd;
};

// Exactly one of x and forward's `normal` is given; the other is null. dx may be null; with `accumulate`, the gradient
// is added to dx. dweight and dbias [n] may be null; the sums over the rows are added to them.
template <class T>
struct NormBackward {
  const T* dy;
  const T* x;
  const uint16_t* normal;
  const T* weight;
  const T* mean;
  const T* rest;
  const T* rstd;
  T* dx;
  bool accumulate;
  T* dweight;
  T* dbias;
};

template <class T>
struct NormKernels {
  void (*layer_norm)(const NormForward<T>& a, int64_t rows, int64_t n, T eps);
  void (*layer_norm_backward)(const NormBackward<T>& a, int64_t rows, int64_t n);
  void (*rms_norm)(const NormForward<T>& a, int64_t rows, int64_t n, T eps);
  void (*rms_norm_backward)(const NormBackward<T>& a, int64_t rows, int64_t n);
  // out [n] = (or +=, if `accumulate`) the sum of the rows of x, `stride` elements apart, in their order.
  void (*sum_rows)(const T* x, int64_t rows, int64_t n, int64_t stride, T* out, bool accumulate);
};

using NormTable = FloatTable<NormKernels>;
const NormTable& norm_table();  // for the level in use

}  // namespace heed::kernels

// Kernels of layer_norm and rms_norm. They work on `rows` rows of n >= 1 elements, one behind the other.
#pragma once
#include <stdint.h>

#include "dispatch.hpp"

namespace heed::kernels {

// y = weight * normal + bias, where normal = (x - mean - rest) * rstd; weight and bias [n] may be null. mean, rest and
// rstd [rows] are written for backward; mean and rest are null for rms_norm. The mean of the row is mean + rest: `rest`
// is what rounding took off, which may be as large as the deviations are. `normal`, in bf16, may be null, as it is for
// double.
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

// x is null where forward's `normal` is given, and the reverse. dx may be null; it is added to if `accumulate`. dweight
// and dbias [n] may be null; the sums over the rows are added to them.
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
  // out [n] is (or, if `accumulate`, is raised by) the sum of the rows of x, `stride` elements apart, in their order.
  void (*sum_rows)(const T* x, int64_t rows, int64_t n, int64_t stride, T* out, bool accumulate);
};

using NormTable = FloatTable<NormKernels>;
const NormTable& norm_kernels();  // of the level that runs

}  // namespace heed::kernels

// Sums of products, element by element: the kernel of convolutions with one channel and one filter per group.
#pragma once
#include <stdint.h>

namespace heed::kernels {

template <class T>
struct DepthwiseTerm {
  const T *a, *b;  // [n] each
};

// to[j] = start[j] + a_0[j] * b_0[j] + a_1[j] * b_1[j] + ... Each product is rounded before it is added, and they are
// added in order, so a sum may be computed in several calls.
template <class T>
struct DepthwiseSum {
  T* to;                          // [n]
  const T* start;                 // [n]; `to` itself, or null for zeros
  const DepthwiseTerm<T>* terms;  // [count]
  int64_t count, n;
};

struct DepthwiseTable {
  void (*f32)(const DepthwiseSum<float>& sum);
  void (*f64)(const DepthwiseSum<double>& sum);
};

const DepthwiseTable& depthwise_table();  // for the level in use

}  // namespace heed::kernels

// The activation of a feed-forward network on runs of its hidden layer, in memory of the type that is computed in or
// of bf16. Formulas are the rows of elementwise_ops.hpp.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "dispatch.hpp"

namespace heed::kernels {

template <class T>
struct ActivationKernel {
  // h = act(u) for n numbers; u goes to `kept`, too, unless that is null.
  void (*forward)(const T* u, T* kept, T* h, ptrdiff_t n);
  // du = dh act'(u) and, unless h is null, h = act(u). du may be dh.
  void (*backward)(const T* dh, const T* u, T* du, T* h, ptrdiff_t n);
  // The same with u, h and du rounded to bf16 in memory; h is the activation of u as it is after that. Null for double.
  void (*forward_bf16)(const T* u, uint16_t* kept, uint16_t* h, ptrdiff_t n);
  // du is given twice: rounded, and as it was in the place of dh.
  void (*backward_bf16)(T* dh, const uint16_t* u, uint16_t* du, uint16_t* h, ptrdiff_t n);
};

template <class T>
struct ActivationKernels {
  ActivationKernel<T> relu, gelu, gelu_tanh, silu, relu_squared;
};

using ActivationTable = FloatTable<ActivationKernels>;
const ActivationTable& activation_table();  // of the level that runs

}  // namespace heed::kernels

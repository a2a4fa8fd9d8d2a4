// The activation of a feed-forward network, on runs of its hidden layer. Memory has the type of the computation, or
// bf16. The formulas are rows of ops.hpp.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "../dispatch/dispatch.hpp"

namespace heed::kernels {

template <class T>
struct ActivationKernel {
  // h = act(u) for n numbers. If `kept` is not null, u is also stored there.
  void (*forward)(const T* u, T* kept, T* h, ptrdiff_t n);
  // du = dh act'(u) and, if h is not null, h = act(u). du may be dh.
  void (*backward)(const T* dh, const T* u, T* du, T* h, ptrdiff_t n);
  // The same with u, h and du rounded to bf16 in memory. h is the activation of the rounded u. Null for double.
  void (*forward_bf16)(const T* u, uint16_t* kept, uint16_t* h, ptrdiff_t n);
  // du is stored twice: rounded, and unrounded in the place of dh.
  void (*backward_bf16)(T* dh, const uint16_t* u, uint16_t* du, uint16_t* h, ptrdiff_t n);
};

template <class T>
struct ActivationKernels {
  ActivationKernel<T> relu, gelu, gelu_tanh, silu, relu_squared;
};

using ActivationTable = FloatTable<ActivationKernels>;
const ActivationTable& activation_table();  // for the level in use

}  // namespace heed::kernels

// What follows the sums of a matrix product: activation and residual. Included only by *.kernel.cpp.
#pragma once
#include "gemm.hpp"
#include "simd.hpp"

namespace heed::kernels::HEED_LEVEL {

template <class T>
inline Batch<T> activate(GemmActivation kind, Batch<T> x) {
  switch (kind) {
    case GemmActivation::relu: return select(x < Batch<T>(T(0)), Batch<T>(T(0)), x);  // NaN stays
    case GemmActivation::gelu: return gelu_exact(x);
    case GemmActivation::gelu_tanh: return gelu_tanh(x);
    default: return x;
  }
}

// c = activation(c) + residual for rows [row, row + rows) and columns [column, column + columns).
template <class T>
inline void epilogue(const GemmProblem& g, long row, long rows, long column, long columns) {
  constexpr int w = kWidth<T>;
  if (g.activation == GemmActivation::none && g.before == nullptr && g.residual == nullptr) return;
  for (long i = row; i < row + rows; ++i) {
    T* c = static_cast<T*>(g.c) + i * g.ldc;
    T* before = g.before == nullptr ? nullptr : static_cast<T*>(g.before) + i * g.before_ld;
    const T* residual = g.residual == nullptr ? nullptr : static_cast<const T*>(g.residual) + i * g.residual_ld;
    for (long j = column; j < column + columns; j += w) {
      const long left = column + columns - j;
      if (left >= w) {
        Batch<T> x = load(c + j);
        if (before != nullptr) store(before + j, x);
        x = activate(g.activation, x);
        if (residual != nullptr) x = x + load(residual + j);
        store(c + j, x);
      } else {
        const int some = static_cast<int>(left);
        Batch<T> x = load_part(c + j, some);
        if (before != nullptr) store_part(before + j, x, some);
        x = activate(g.activation, x);
        if (residual != nullptr) x = x + load_part(residual + j, some);
        store_part(c + j, x, some);
      }
    }
  }
}

}  // namespace heed::kernels::HEED_LEVEL

// The functions of simd.hpp applied to arrays, so that tests can check them on every level.
#pragma once
#include <stddef.h>
#include <stdint.h>

namespace heed::kernels {

enum class SimdFunction { exp, expm1, log, log1p, tanh, erf, sigmoid, gelu_tanh, gelu_exact, sqrt, rsqrt };

// The functions for one element type. Arrays have `width` items unless n is given.
template <class T>
struct SimdProbe {
  int width;
  void (*apply)(SimdFunction f, const T* x, T* y, size_t n);  // any n: whole vectors and a masked tail
  void (*copy_part)(const T* x, T* y, int n, T fill);         // y[0, width) = load_part(x, n, fill)
  void (*store_part)(T* y, const T* x, int n);                // x has `width` items
  void (*fma)(const T* x, const T* y, const T* z, T* out);
  void (*max)(const T* x, const T* y, T* out);
  void (*min)(const T* x, const T* y, T* out);
  void (*quick_max)(const T* x, const T* y, T* out);
  void (*quick_min)(const T* x, const T* y, T* out);
  void (*divide)(const T* x, const T* y, T* out);
  void (*masks)(const T* x, const T* y,
                T* out);               // bits: 1 x < y, 2 !(x == y), 4 isnan(x), 16 all(x < y), 32 any(x < y)
  void (*reduce)(const T* x, T* add_max_min);          // three results
  void (*sums)(const T* x, const T* y, int64_t n, T* lane_tree_dot);  // lane_sum(x), tree_sum(x), lane_dot(x, y)
};

struct SimdProbes {
  SimdProbe<float> f32;
  SimdProbe<double> f64;
  void (*from_bf16)(const uint16_t* x, float* y, size_t n);
};

const SimdProbes& simd_probes();  // of the current level

}  // namespace heed::kernels

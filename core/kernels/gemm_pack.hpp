// Copies of operands in the order in which the tile reads them. Included only by *.kernel.cpp.
#pragma once
#include "gemm_tile.hpp"

namespace heed::kernels::HEED_LEVEL {

// out[p * width + i] = x[i * stride + p] for i < lanes <= width and p < k, 0 for other i < width: lines of x become
// columns. `width` is a multiple of the vector.
template <class T, class S>
inline void pack_transposed(const S* x, long stride, int lanes, int width, long k, T* out) {
  transpose<T>(x, stride, lanes, k, width, [&](long p, long i, Batch<T> v, int) { store(out + p * width + i, v); });
}

// out[p * width + i] = x[p * stride + i] for i < lanes <= width, 0 for other i < width. `width` is a multiple of the
// vector.
template <class T, class S>
inline void pack_rows(const S* x, long stride, int lanes, int width, long k, T* out) {
  constexpr int w = kWidth<T>;
  for (long p = 0; p < k; ++p, x += stride, out += width)
    for (int i = 0; i < width; i += w) {
      const int left = lanes - i;
      __builtin_prefetch(x + 8 * stride + i);  // each line may lie on another page
      if (left >= w)
        store(out + i, load_as<T>(x + i));
      else if (left > 0)
        store(out + i, load_as_part<T>(x + i, left));
      else
        store(out + i, Batch<T>(T(0)));
    }
}

// Any strides.
template <class T, class S>
inline void pack_strided(const S* x, long lane_stride, long k_stride, int lanes, int width, long k, T* out) {
  for (long p = 0; p < k; ++p)
    for (int i = 0; i < width; ++i)
      out[p * width + i] = i < lanes ? element<T>(x + i * lane_stride + p * k_stride) : T(0);
}

template <class T, class S>
inline void pack(const S* x, long lane_stride, long k_stride, int lanes, int width, long k, T* out) {
  if (k_stride == 1)
    pack_transposed(x, lane_stride, lanes, width, k, out);
  else if (lane_stride == 1)
    pack_rows(x, k_stride, lanes, width, k, out);
  else
    pack_strided(x, lane_stride, k_stride, lanes, width, k, out);
}

}  // namespace heed::kernels::HEED_LEVEL

// Copies of operands in the order in which the tile reads them. Included only by *.kernel.cpp.
#pragma once
#include "gemm_tile.hpp"

namespace heed::kernels::HEED_LEVEL {

// Elements of an operand of type S (float, double, or bf16 as uint16_t) as T.
template <class T>
inline T element(const T* p) {
  return *p;
}
template <class T>
inline float element(const uint16_t* p) {
  return bf16_to_float(*p);
}
template <class T>
inline Batch<T> load_as(const T* p) {
  return load(p);
}
template <class T>
inline Batch<T> load_as(const uint16_t* p) {
  return load_bf16(p);
}
template <class T>
inline Batch<T> load_as_part(const T* p, int n) {
  return load_part(p, n);
}
template <class T>
inline Batch<T> load_as_part(const uint16_t* p, int n) {
  return load_bf16_part(p, n);
}

// out[p * width + i] = x[i * stride + p] for i < lanes <= width and p < k, 0 for other i < width: lines of x become
// columns. `width` is a multiple of the vector.
template <class T, class S>
inline void pack_transposed(const S* x, long stride, int lanes, int width, long k, T* out) {
  constexpr int w = kWidth<T>;
  for (int group = 0; group < width; group += w) {
    const int rows = lanes - group;  // of this group, may be more than w or less than 1
    for (long p = 0; p < k; p += w) {
      const int left = static_cast<int>(k - p);
      Batch<T> row[w];
      unroll<w>([&](auto i) {
        const S* line = x + (group + i) * stride + p;
        if (i >= rows)
          row[i] = Batch<T>(T(0));
        else
          row[i] = left >= w ? load_as<T>(line) : load_as_part<T>(line, left);
      });
      transpose_lanes<T>(row);
      T* to = out + p * width + group;
      unroll<w>([&](auto i) {
        if (i < left) store(to + i * width, row[i]);
      });
    }
  }
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

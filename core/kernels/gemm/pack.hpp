// Copies of operands in the order in which the tile reads them. Included only by *.kernel.cpp.
#pragma once
#include "tile.hpp"

namespace heed::kernels::HEED_LEVEL {

// The number of k at step s of the packed operands of products P. The function is its own inverse.
template <class P>
constexpr long number_at(long s) {
  return std::is_same_v<P, Bf16Numbers> ? s ^ 1 : s;
}

// Memory of type S, converted to the elements of products P.
template <class P, class S>
struct Source {
  using T = typename Product<P>::Element;
  template <class X>
  static X value(const X& x) {
    if constexpr (std::is_same_v<P, Bf16Numbers> && std::is_same_v<S, float>)
      return rounded_by_machine(x);
    else
      return x;
  }
  static T element(const S* x) { return value(HEED_LEVEL::element<T>(x)); }
  // The first n numbers, then zeros. n may be negative, or more than a vector holds.
  static Batch<T> load(const S* x, long n) {
    return value(n >= kWidth<T> ? load_as<T>(x) : load_as_part<T>(x, static_cast<int>(n > 0 ? n : 0)));
  }
};

// In the functions below, `numbers` numbers of k fill `steps` steps. Missing numbers are zeros.

// out[s * width + i] = x[i * stride + number_at(s)] for i < lanes <= width, 0 for other i < width: rows of x become
// columns. `width` is a multiple of the vector.
template <class P, class S, class T>
inline void pack_transposed(const S* x, long stride, int lanes, int width, long numbers, long steps, T* out) {
  transpose<T>(x, stride, lanes, numbers, width, [&](long p, long i, Batch<T> v, int) {
    store(out + number_at<P>(p) * width + i, Source<P, S>::value(v));
  });
  for (long p = numbers; p < steps; ++p)
    memset(out + number_at<P>(p) * width, 0, static_cast<size_t>(width) * sizeof *out);
}

// out[s * width + i] = x[number_at(s) * stride + i] for i < lanes <= width, 0 for other i < width. `width` is a
// multiple of the vector.
template <class P, class S, class T>
inline void pack_rows(const S* x, long stride, int lanes, int width, long numbers, long steps, T* out) {
  for (long s = 0; s < steps; ++s) {
    const long number = number_at<P>(s), there = number < numbers ? lanes : 0;
    const S* from = x + number * stride;
    for (int i = 0; i < width; i += kWidth<T>) {
      __builtin_prefetch(from + 8 * stride + i);  // each line may be on another page
      store(out + s * width + i, Source<P, S>::load(from + i, there - i));
    }
  }
}

// The same for any strides.
template <class P, class S, class T>
inline void pack_strided(const S* x, long lane_stride, long k_stride, int lanes, int width, long numbers, long steps,
                         T* out) {
  for (long s = 0; s < steps; ++s) {
    const long number = number_at<P>(s), there = number < numbers ? lanes : 0;
    for (int i = 0; i < width; ++i)
      out[s * width + i] = i < there ? Source<P, S>::element(x + i * lane_stride + number * k_stride) : T(0);
  }
}

template <class P, class S, class T>
inline void pack(const S* x, long lane_stride, long k_stride, int lanes, int width, long numbers, long steps, T* out) {
  if (k_stride == 1)
    pack_transposed<P>(x, lane_stride, lanes, width, numbers, steps, out);
  else if (lane_stride == 1)
    pack_rows<P>(x, k_stride, lanes, width, numbers, steps, out);
  else
    pack_strided<P>(x, lane_stride, k_stride, lanes, width, numbers, steps, out);
}

// One row: out[s] = x[number_at(s) * stride], padded to whole vectors if stride is 1.
template <class P, class S, class T>
inline void pack_row(const S* x, long stride, long numbers, long steps, T* out) {
  if (stride != 1) return pack_strided<P>(x, 0, stride, 1, 1, numbers, steps, out);
  for (long s = 0; s < steps; s += kWidth<T>) {
    const Batch<T> v = Source<P, S>::load(x + s, numbers - s);
    store(out + s, number_at<P>(0) == 1 ? swap_lanes<1>(v) : v);
  }
}

}  // namespace heed::kernels::HEED_LEVEL

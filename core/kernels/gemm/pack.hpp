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
  // The first n numbers, then zeros: see load_up_to().
  static Batch<T> load(const S* x, long n) { return value(load_up_to<T>(x, n)); }
};

// Lanes of an operand in memory, each with `numbers` numbers of k.
template <class S>
struct OperandLanes {
  const S* data;
  long lane_stride, k_stride;
  int lanes;
  long numbers;
};

// The functions below compute out[s * width + i] = number number_at(s) of lane i, or 0 if there is no such lane or
// number, for steps s < `steps` and lanes i < `width`.

// For k_stride 1: lanes are transposed. `width` is a multiple of the vector.
template <class P, class S, class T>
inline void pack_transposed(OperandLanes<S> x, int width, long steps, T* out) {
  transpose<T>(x.data, x.lane_stride, x.lanes, x.numbers, width, [&](long p, long i, Batch<T> v, int) {
    store(out + number_at<P>(p) * width + i, Source<P, S>::value(v));
  });
  for (long p = x.numbers; p < steps; ++p)
    memset(out + number_at<P>(p) * width, 0, static_cast<size_t>(width) * sizeof *out);
}

// For lane_stride 1. `width` is a multiple of the vector.
template <class P, class S, class T>
inline void pack_rows(OperandLanes<S> x, int width, long steps, T* out) {
  const long stride = x.k_stride;
  for (long s = 0; s < steps; ++s) {
    const long number = number_at<P>(s), there = number < x.numbers ? x.lanes : 0;
    const S* from = x.data + number * stride;
    for (int i = 0; i < width; i += kWidth<T>) {
      __builtin_prefetch(from + 8 * stride + i);  // each line may be on another page
      store(out + s * width + i, Source<P, S>::load(from + i, there - i));
    }
  }
}

// For any strides.
template <class P, class S, class T>
inline void pack_strided(OperandLanes<S> x, int width, long steps, T* out) {
  for (long s = 0; s < steps; ++s) {
    const long number = number_at<P>(s), there = number < x.numbers ? x.lanes : 0;
    for (int i = 0; i < width; ++i)
      out[s * width + i] = i < there ? Source<P, S>::element(x.data + i * x.lane_stride + number * x.k_stride) : T(0);
  }
}

template <class P, class S, class T>
inline void pack(OperandLanes<S> x, int width, long steps, T* out) {
  if (x.k_stride == 1)
    pack_transposed<P>(x, width, steps, out);
  else if (x.lane_stride == 1)
    pack_rows<P>(x, width, steps, out);
  else
    pack_strided<P>(x, width, steps, out);
}

// One row: out[s] = x[number_at(s) * stride], or 0 from `numbers` on, padded to whole vectors if stride is 1.
template <class P, class S, class T>
inline void pack_row(const S* x, long stride, long numbers, long steps, T* out) {
  if (stride != 1) return pack_strided<P>(OperandLanes<S>{x, 0, stride, 1, numbers}, 1, steps, out);
  for (long s = 0; s < steps; s += kWidth<T>) {
    const Batch<T> v = Source<P, S>::load(x + s, numbers - s);
    store(out + s, number_at<P>(0) == 1 ? swap_lanes<1>(v) : v);
  }
}

}  // namespace heed::kernels::HEED_LEVEL

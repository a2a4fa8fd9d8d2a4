// The loops around the formulas of elementwise*.kernel.cpp, and only included there. A formula is a struct F with
// static functions on batches: forward(x, s), backward(x or y, dy, s), or forward(a, b, s), backward_a(a, b, dy, s),
// ...
#pragma once
#include "elementwise.hpp"
#include "simd.hpp"

namespace heed::kernels::HEED_LEVEL {
namespace {

// An op's constants, in every lane.
template <class V>
struct Constants {
  V a, b;
  double number_a;  // a, unrounded
  explicit Constants(const ElementwiseOptions& o)
      : a(static_cast<typename V::value_type>(o.a)), b(static_cast<typename V::value_type>(o.b)), number_a(o.a) {}
};

// The C library's pow, lane by lane: exact to an ulp in all of its special cases, where xsimd's is off by 112.
template <class T>
Batch<T> pow_lanes(Batch<T> x, Batch<T> y) {
  alignas(64) T base[kWidth<T>], exponent[kWidth<T>];
  store_aligned(base, x);
  store_aligned(exponent, y);
  for (int i = 0; i < kWidth<T>; ++i)
    base[i] = sizeof(T) == 4 ? __builtin_powf(base[i], exponent[i]) : __builtin_pow(base[i], exponent[i]);
  return load_aligned(base);
}

template <class T>
inline Batch<T> load_step(const T* p, ptrdiff_t i, unsigned char step) {
  return step ? load(p + i) : Batch<T>(*p);
}
template <class T>
inline Batch<T> load_step_part(const T* p, ptrdiff_t i, unsigned char step, int n) {
  return step ? load_part(p + i, n, T(1)) : Batch<T>(*p);
}

template <class T>
inline void store_or_add(T* p, Batch<T> v, bool accumulate) {
  store(p, accumulate ? load(p) + v : v);
}
template <class T>
inline void store_or_add_part(T* p, Batch<T> v, int n, bool accumulate) {
  store_part(p, accumulate ? load_part(p, n) + v : v, n);
}

// Lanes behind the end compute on ones, and are not stored.
template <class T, class F>
void unary_loop(void* to, const void* const* in, const unsigned char*, ptrdiff_t n, const ElementwiseOptions& o) {
  T* out = static_cast<T*>(to);
  const T* x = static_cast<const T*>(in[0]);
  const Constants<Batch<T>> s(o);
  const bool add = o.accumulate;
  ptrdiff_t i = 0;
  for (; i + kWidth<T> <= n; i += kWidth<T>) store_or_add(out + i, F::forward(load(x + i), s), add);
  if (const int rest = static_cast<int>(n - i); rest > 0)
    store_or_add_part(out + i, F::forward(load_part(x + i, rest, T(1)), s), rest, add);
}

template <class T, class F>
void unary_backward_loop(void* to, const void* const* in, const unsigned char* step, ptrdiff_t n,
                         const ElementwiseOptions& o) {
  T* out = static_cast<T*>(to);
  const T *x = static_cast<const T*>(in[0]), *dy = static_cast<const T*>(in[1]);
  const unsigned char p = step[0], q = step[1];
  const Constants<Batch<T>> s(o);
  const bool add = o.accumulate;
  ptrdiff_t i = 0;
  for (; i + kWidth<T> <= n; i += kWidth<T>)
    store_or_add(out + i, F::backward(load_step(x, i, p), load_step(dy, i, q), s), add);
  if (const int rest = static_cast<int>(n - i); rest > 0) {
    const Batch<T> dx = F::backward(load_step_part(x, i, p, rest), load_step_part(dy, i, q, rest), s);
    store_or_add_part(out + i, dx, rest, add);
  }
}

// Which function of a formula a loop runs.
struct Forward {
  template <class F, class V>
  static V call(V a, V b, Constants<V> s) {
    return F::forward(a, b, s);
  }
};
struct BackwardA {
  template <class F, class V>
  static V call(V a, V b, V dy, Constants<V> s) {
    return F::backward_a(a, b, dy, s);
  }
};
struct BackwardB {
  template <class F, class V>
  static V call(V a, V b, V dy, Constants<V> s) {
    return F::backward_b(a, b, dy, s);
  }
};

template <class T, class F>
void binary_loop(void* to, const void* const* in, const unsigned char* step, ptrdiff_t n, const ElementwiseOptions& o) {
  T* out = static_cast<T*>(to);
  const T *a = static_cast<const T*>(in[0]), *b = static_cast<const T*>(in[1]);
  const Constants<Batch<T>> s(o);
  const unsigned char p = step[0], q = step[1];
  const bool add = o.accumulate;
  ptrdiff_t i = 0;
  if (p && q && !add)
    for (; i + kWidth<T> <= n; i += kWidth<T>) store(out + i, F::forward(load(a + i), load(b + i), s));
  for (; i + kWidth<T> <= n; i += kWidth<T>)
    store_or_add(out + i, F::forward(load_step(a, i, p), load_step(b, i, q), s), add);
  if (const int rest = static_cast<int>(n - i); rest > 0) {
    const Batch<T> y = F::forward(load_step_part(a, i, p, rest), load_step_part(b, i, q, rest), s);
    store_or_add_part(out + i, y, rest, add);
  }
}

// An input that the formula does not read is not loaded: what remains of it is dead code.
template <class T, class F, class Which>
void binary_backward_loop(void* to, const void* const* in, const unsigned char* step, ptrdiff_t n,
                          const ElementwiseOptions& o) {
  T* out = static_cast<T*>(to);
  const T *a = static_cast<const T*>(in[0]), *b = static_cast<const T*>(in[1]), *dy = static_cast<const T*>(in[2]);
  const Constants<Batch<T>> s(o);
  const unsigned char p = step[0], q = step[1], r = step[2];
  const bool add = o.accumulate;
  ptrdiff_t i = 0;
  for (; i + kWidth<T> <= n; i += kWidth<T>) {
    const Batch<T> u = load_step(a, i, p), v = load_step(b, i, q), w = load_step(dy, i, r);
    store_or_add(out + i, Which::template call<F>(u, v, w, s), add);
  }
  if (const int rest = static_cast<int>(n - i); rest > 0) {
    const Batch<T> u = load_step_part(a, i, p, rest), v = load_step_part(b, i, q, rest);
    const Batch<T> w = load_step_part(dy, i, r, rest);
    store_or_add_part(out + i, Which::template call<F>(u, v, w, s), rest, add);
  }
}

template <class F, ElementwiseKernel ints = nullptr>
constexpr UnaryKernel unary_kernel = {{unary_loop<float, F>, unary_loop<double, F>, ints, nullptr},
                                      {unary_backward_loop<float, F>, unary_backward_loop<double, F>}};

}  // namespace
}  // namespace heed::kernels::HEED_LEVEL

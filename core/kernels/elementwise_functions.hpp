// Functions on vectors that formulas of elementwise_ops.hpp use beyond simd.hpp. Included only by
// elementwise.kernel.cpp.
#pragma once
#include "simd.hpp"

namespace heed::kernels::HEED_LEVEL {
namespace {

template <class V>
inline V sign_of(V x) {  // 0 for NaN
  return select(x > V(0), V(1), select(x < V(0), V(-1), V(0)));
}

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

// x^a. The usual exponents have a product or root of their own, as in PyTorch, others the C library's pow.
template <class V>
inline V power(V x, double a, V exponent) {
  if (a == 2) return x * x;
  if (a == 0) return V(1);
  if (a == 1) return x;
  if (a == 3) return x * x * x;
  if (a == 0.5) return sqrt(x);
  if (a == -0.5) return rsqrt(x);
  if (a == -1) return V(1) / x;
  if (a == -2) return V(1) / (x * x);
  return pow_lanes(x, exponent);
}

// x = q pi/2 + r with |r| <= pi/4, for |x| <= kReducible, in float64: pi/2 in three parts, of which the first two have
// so few bits that their products with q are exact. (xsimd's reduction pulls in symbols that all levels would share.)
constexpr double kReducible = 1e6;
template <class T>
inline Batch<T> reduce_angle(Batch<T> x, Batch<T>& quadrant) {
  alignas(64) T lane[kWidth<T>], quarters[kWidth<T>];
  store_aligned(lane, x);
  for (int i = 0; i < kWidth<T>; ++i) {
    const double q = (lane[i] * 0.63661977236758134308 + 6755399441055744.) - 6755399441055744.;
    const double r =
        lane[i] - q * 1.57079632673412561417 - q * 6.07710050630396597660e-11 - q * 2.02226624879595063154e-21;
    const double quarter = q - 4 * ((q * 0.25 + 6755399441055744.) - 6755399441055744.);  // -2 to 2
    lane[i] = static_cast<T>(r);
    quarters[i] = static_cast<T>(quarter);
  }
  quadrant = load_aligned(quarters);
  return load_aligned(lane);
}

// sin and cos of |r| <= pi/4 (Cephes).
inline Batch<float> sin_near(Batch<float> r) {
  static constexpr float c[] = {-1.9515295891e-4f, 8.3321608736e-3f, -1.6666654611e-1f};
  const Batch<float> z = r * r;
  return fma(horner(c, z) * z, r, r);
}
inline Batch<float> cos_near(Batch<float> r) {
  static constexpr float c[] = {2.443315711809948e-5f, -1.388731625493765e-3f, 4.166664568298827e-2f};
  const Batch<float> z = r * r;
  return fma(horner(c, z) * z, z, fma(z, Batch<float>(-0.5f), Batch<float>(1.f)));
}
inline Batch<double> sin_near(Batch<double> r) {
  static constexpr double c[] = {1.58962301576546568060e-10, -2.50507477628578072866e-8, 2.75573136213857245213e-6,
                                 -1.98412698295895385996e-4, 8.33333333332211858878e-3,  -1.66666666666666307295e-1};
  const Batch<double> z = r * r;
  return fma(horner(c, z) * z, r, r);
}
inline Batch<double> cos_near(Batch<double> r) {
  static constexpr double c[] = {-1.13585365213876817300e-11, 2.08757008419747316778e-9,  -2.75573141792967388112e-7,
                                 2.48015872888517045348e-5,   -1.38888888888730564116e-3, 4.16666666666665929218e-2};
  const Batch<double> z = r * r;
  return fma(horner(c, z) * z, z, fma(z, Batch<double>(-0.5), Batch<double>(1.)));
}

// The C library's, lane by lane, for angles beyond the reduction.
template <bool cosine, class T>
Batch<T> sin_far(Batch<T> x) {
  alignas(64) T lane[kWidth<T>];
  store_aligned(lane, x);
  for (int i = 0; i < kWidth<T>; ++i) {
    if constexpr (sizeof(T) == 4)
      lane[i] = cosine ? __builtin_cosf(lane[i]) : __builtin_sinf(lane[i]);
    else
      lane[i] = cosine ? __builtin_cos(lane[i]) : __builtin_sin(lane[i]);
  }
  return load_aligned(lane);
}

template <bool cosine, class T>
inline Batch<T> sin_or_cos(Batch<T> x) {
  const Mask<T> near = abs(x) <= Batch<T>(T(kReducible));
  if (!all(near)) return sin_far<cosine>(x);
  Batch<T> q;
  const Batch<T> r = reduce_angle(x, q), s = sin_near(r), c = cos_near(r);
  const Mask<T> is_odd = abs(q) == Batch<T>(T(1)), half = abs(q) == Batch<T>(T(2));
  if constexpr (cosine) {  // of quadrants 0, 1, 2, -1: c, -s, -c, s
    const Batch<T> y = select(is_odd, s, c);
    return select((q == Batch<T>(T(1))) | half, neg(y), y);
  } else {  // s, c, -s, -c; of -0 it is -0, which the sum of r and its powers loses
    const Batch<T> y = select(is_odd, c, s);
    return select(x == Batch<T>(T(0)), x, select((q == Batch<T>(T(-1))) | half, neg(y), y));
  }
}

template <class V>
inline V sine(V x) {
  return sin_or_cos<false>(x);
}
template <class V>
inline V cosine(V x) {
  return sin_or_cos<true>(x);
}

}  // namespace
}  // namespace heed::kernels::HEED_LEVEL

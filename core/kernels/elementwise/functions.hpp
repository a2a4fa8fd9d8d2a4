// Functions on vectors for the formulas of ops.hpp, beyond those of simd/simd.hpp. Included only by
// elementwise.kernel.cpp.
#pragma once
#include "../simd/simd.hpp"
#include "scalar_math.hpp"

namespace heed::kernels::HEED_LEVEL {
namespace {

template <class V>
inline V sign_of(V x) {  // 0 for NaN
  return select(x > V(0), V(1), select(x < V(0), V(-1), V(0)));
}

// The rounding error x y - p of p = x y. Without fused multiply-add, from halves of x and y (Dekker, 1971).
inline Batch<double> lost_of_product(Batch<double> x, Batch<double> y, Batch<double> p) {
#if defined(__FMA__) || defined(__aarch64__)
  return fma(x, y, neg(p));
#else
  const auto upper = [](Batch<double> v) {
    const Batch<double> c = v * Batch<double>(0x1p27 + 1);
    return c - (c - v);
  };
  const Batch<double> a = upper(x), b = x - a, c = upper(y), d = y - c;
  return ((a * c - p) + (a * d + b * c)) + b * d;
#endif
}

// log(x) = high + low to 63 bits, for finite x > 0; returns high. The formula is that of log_composed,
// k ln 2 + 2 s + s (2/3 z + z^2 Q(z)). Both s = f / (2 + f) and the product of s z and 2/3 + z Q(z) are computed in two
// parts each.
inline Batch<double> log_in_two(Batch<double> x, Batch<double>& low) {
  using B = Batch<double>;
  using K = LogConstants<double>;
  const Mask<double> small = x < B(K::min_normal);
  B k;
  const B f = log_reduced(select(small, x * B(0x1p54), x), k), d = B(2) + f, d_low = (B(2) - d) + f;
  k = select(small, k - B(54), k);
  const B s = f / d, f_near = s * d, s_low = fnma(s, d_low, (f - f_near) - lost_of_product(s, d, f_near)) / d;
  const B z = s * s, z_low = lost_of_product(s, s, z), w = s * z, w_low = fma(s, z_low, lost_of_product(s, z, w));
  static constexpr double q[] = {1.479819860511658591e-01, 1.531383769920937332e-01, 1.818357216161805012e-01,
                                 2.222219843214978396e-01, 2.857142874366239149e-01, 3.999999999940941908e-01};
  const B first(0.66666666666666663), more = z * horner(q, z), p = first + more;
  const B p_low = ((first - p) + more) + B(3.7007434154171886e-17);
  const B t = w * p, t_low = lost_of_product(w, p, t) + fma(w, p_low, w_low * p);
  // k ln2_high + 2 s is summed exactly. So is its sum with t, since |t| is below a hundredth of |2 s|.
  const B a = k * B(K::ln2_high), b = s + s, sum = a + b, back = sum - a, lost = (a - (sum - back)) + (b - back);
  const B high = sum + t, lost_again = (sum - high) + t;
  const B rest = fma(k, B(K::ln2_low), (lost + lost_again) + ((s_low + s_low) + t_low));
  const B y = high + rest;
  low = (high - y) + rest;
  return y;
}

// e^(high + low) for a small low.
inline Batch<double> exp_of_two(Batch<double> high, Batch<double> low) {
  using B = Batch<double>;
  const B e = exp(high);
  return select((abs(low) < B(1)) & (e < B(kInfinity<double>)), fma(e, low, e), e);
}

// x as float64: the lower half of the lanes and the upper half.
inline void widen(Batch<float> x, Batch<double> (&y)[2]) {
#if defined(__AVX512F__)
  y[0] = _mm512_cvtps_pd(_mm512_castps512_ps256(x)), y[1] = _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1));
#elif defined(__AVX2__)
  y[0] = _mm256_cvtps_pd(_mm256_castps256_ps128(x)), y[1] = _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1));
#else
  constexpr int w = kWidth<float>, half = kWidth<double>;
  alignas(64) float narrow[w];
  alignas(64) double wide[w];
  store_aligned(narrow, x);
  for (int i = 0; i < w; ++i) wide[i] = narrow[i];
  y[0] = load_aligned(wide), y[1] = load_aligned(wide + half);
#endif
}
inline Batch<float> narrow(const Batch<double> (&y)[2]) {
#if defined(__AVX512F__)
  return _mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(y[0])), _mm512_cvtpd_ps(y[1]), 1);
#elif defined(__AVX2__)
  return _mm256_set_m128(_mm256_cvtpd_ps(y[1]), _mm256_cvtpd_ps(y[0]));
#else
  constexpr int w = kWidth<float>, half = kWidth<double>;
  alignas(64) float lane[w];
  alignas(64) double wide[w];
  store_aligned(wide, y[0]), store_aligned(wide + half, y[1]);
  for (int i = 0; i < w; ++i) lane[i] = static_cast<float>(wide[i]);
  return load_aligned(lane);
#endif
}

// x^y for finite x > 0; x and y are floats, relative error 2^-28. e^(y log x) with shorter series than for float64.
inline Batch<double> power_for_float(Batch<double> x, Batch<double> y) {
  using B = Batch<double>;
  using K = ExpConstants<double>;
  static constexpr double c[] = {2. / 11, 2. / 9, 2. / 7, 2. / 5, 2. / 3};
  static constexpr double e[] = {1. / 362880, 1. / 40320, 1. / 5040, 1. / 720, 1. / 120, 1. / 24, 1. / 6, 0.5, 1, 1};
  B k;
  const B f = log_reduced(x, k), s = f / (B(2) + f), z = s * s;
  const B log_x = fma(k, B(0.693147180559945309), fma(s * z, horner(c, z), s + s));
  const B v = quick_min(B(700), quick_max(B(-700), log_x * y));
  const B n = fma(v, B(K::log2e), B(K::magic)) - B(K::magic), r = fnma(n, B(0.693147180559945309), v);
  return horner(e, r) * power_of_two(n);
}

// x^y for finite x > 0 and finite y.
inline Batch<double> power_of_size(Batch<double> size, Batch<double> y) {
  Batch<double> low;
  const Batch<double> high = log_in_two(size, low), product = high * y;
  return exp_of_two(product, fma(low, y, lost_of_product(high, y, product)));
}
inline Batch<float> power_of_size(Batch<float> size, Batch<float> y) {
  Batch<double> x[2], exponent[2];
  widen(size, x), widen(y, exponent);
  unroll<2>([&](auto i) { x[i] = power_for_float(x[i], exponent[i]); });
  return narrow(x);
}

// x^y with the special cases of the C library's pow.
template <class T>
Batch<T> pow_lanes(Batch<T> x, Batch<T> y) {
  using B = Batch<T>;
  const B zero(T(0)), one(T(1)), infinity(kInfinity<T>), size = abs(x), exponent = abs(y);
  // Distance of n from the nearest integer, ties to even. Numbers from `magic` on are integers, from 2 `magic` on even.
  constexpr T magic = sizeof(T) == 4 ? T(0x1p23) : T(0x1p52);
  const auto distance = [&](B n) { return select(n < B(magic), abs((n + B(magic)) - B(magic) - n), zero); };
  const Mask<T> odd = distance(exponent * B(T(0.5))) == B(T(0.5)), fraction = distance(exponent) > zero;
  B r = power_of_size(size, y);
  if (all((x > zero) & (x < infinity) & (exponent < infinity))) return r;
  // bases 0 and infinity, whose logarithms are infinite, and infinite exponents
  const B large = select(y > zero, infinity, zero), tiny = select(y > zero, zero, infinity);
  r = select(size == zero, tiny, r);
  r = select(size == infinity, large, r);
  r = select(exponent == infinity, select(size > one, large, tiny), r);
  r = select(size == one, one, r);
  const B none(static_cast<T>(__builtin_nan("")));
  r = select((x < zero) & fraction & (size < infinity), none, r);
  r = select(isnan(x) | isnan(y), none, r);
  const Mask<T> below = xsimd::copysign(one, x) < zero;  // also -0
  r = select(below & odd, neg(r), r);
  return select((y == zero) | (x == one), one, r);
}

// x^a. Common exponents use products, quotients and roots, as in PyTorch.
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

// x = q pi/2 + r with |r| <= pi/4, for |x| <= kReducible, in float64. pi/2 has three parts; the first two have so few
// bits that their products with q are exact. (xsimd's reduction would add symbols that all levels share.)
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

// Lane by lane, for |x| above kReducible.
template <bool cosine, class T>
Batch<T> sin_far(Batch<T> x) {
  alignas(64) T lane[kWidth<T>];
  store_aligned(lane, x);
  for (int i = 0; i < kWidth<T>; ++i) {
    const double angle = static_cast<double>(lane[i]);
    lane[i] = static_cast<T>(cosine ? scalar::quick_cos(angle) : scalar::quick_sin(angle));
  }
  return load_aligned(lane);
}

template <bool cosine, class T>
inline Batch<T> sin_or_cos_near(Batch<T> x) {
  Batch<T> q;
  const Batch<T> r = reduce_angle(x, q), s = sin_near(r), c = cos_near(r);
  const Mask<T> is_odd = abs(q) == Batch<T>(T(1)), half = abs(q) == Batch<T>(T(2));
  if constexpr (cosine) {  // quadrants 0, 1, 2, -1: c, -s, -c, s
    const Batch<T> y = select(is_odd, s, c);
    return select((q == Batch<T>(T(1))) | half, neg(y), y);
  } else {  // quadrants 0, 1, 2, -1: s, c, -s, -c; -0 at -0, which the polynomial would lose
    const Batch<T> y = select(is_odd, c, s);
    return select(x == Batch<T>(T(0)), x, select((q == Batch<T>(T(-1))) | half, neg(y), y));
  }
}

template <bool cosine, class T>
inline Batch<T> sin_or_cos(Batch<T> x) {
  const Mask<T> near = abs(x) <= Batch<T>(T(kReducible));
  if (!all(near)) return select(near, sin_or_cos_near<cosine>(x), sin_far<cosine>(x));
  return sin_or_cos_near<cosine>(x);
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

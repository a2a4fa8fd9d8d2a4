// Elementary functions of float and double batches. All return NaN for NaN. tests/core/kernels/simd/simd_test.cpp
// asserts the largest errors in units in the last place. Included by simd.hpp.
#pragma once

namespace heed::kernels::HEED_LEVEL {

// The polynomial with these coefficients.
template <class T, int N>
inline Batch<T> horner(const T (&highest_first)[N], Batch<T> x) {
  Batch<T> y(highest_first[0]);
  for (int i = 1; i < N; ++i) y = fma(y, x, Batch<T>(highest_first[i]));
  return y;
}

template <class T>
struct ExpConstants;
// Minimax coefficients of (e^r - 1 - r) / r^2 on |r| <= ln(2) / 2, highest power first, and ln(2) in two parts. The
// higher part has so few bits that its product with an exponent is exact.
template <>
struct ExpConstants<float> {
  using Int = int32_t;
  static constexpr float poly[] = {1.3926224919e-3f, 8.3632121398e-3f, 4.1666554369e-2f, 1.6666576791e-1f, 0.5f};
  static constexpr float ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f, log2e = 1.44269504089f;
  static constexpr float lowest = -104.f, highest = 89.f;  // e^x is 0 below, infinite above
  static constexpr float minus_one = -20.f;                // e^x - 1 rounds to -1 below
  static constexpr float magic = 12582912.f;  // 1.5 * 2^23: adding it rounds to an integer, held in the low bits
  static constexpr int bias = 127, shift = 23;
};
template <>
struct ExpConstants<double> {
  using Int = int64_t;
  static constexpr double poly[] = {2.091472898414877265e-9,
                                    2.5105275841936967485e-8,
                                    2.7557273542102104697e-7,
                                    2.7557255258759863183e-6,
                                    2.4801587325627418636e-5,
                                    1.9841269874932201022e-4,
                                    1.3888888888883725502e-3,
                                    8.3333333333261031938e-3,
                                    4.1666666666666669772e-2,
                                    1.6666666666666671015e-1,
                                    0.5};
  static constexpr double ln2_high = 6.93145751953125e-1, ln2_low = 1.42860682030941723212e-6;
  static constexpr double log2e = 1.4426950408889634074;
  static constexpr double lowest = -746., highest = 710.;
  static constexpr double minus_one = -40.;
  static constexpr double magic = 6755399441055744.;  // 1.5 * 2^52
  static constexpr int bias = 1023, shift = 52;
};

// 2^n for integers n in the range of normal numbers.
template <class T>
inline Batch<T> power_of_two(Batch<T> n) {
  using K = ExpConstants<T>;
  const Batch<T> biased = n + Batch<T>(K::magic + K::bias);
  return bits_as<T>(bits_as<typename K::Int>(biased) << K::shift);
}

// x = n ln(2) + r. Returns e^r - 1 - r and sets n and r. x must be finite or NaN, and small enough for n to be exact.
template <class T>
inline Batch<T> exp_reduced(Batch<T> x, Batch<T>& n, Batch<T>& r) {
  using K = ExpConstants<T>;
  n = fma(x, Batch<T>(K::log2e), Batch<T>(K::magic)) - Batch<T>(K::magic);
  r = fma(n, Batch<T>(-K::ln2_low), fma(n, Batch<T>(-K::ln2_high), x));
  return horner(K::poly, r) * (r * r);
}

// e^x: 0 or infinity beyond the range, e^-inf = 0, e^inf = inf; subnormal results are computed, not flushed.
// Gap: xsimd's exp is infinite above 88.376 and 0 below -88.
template <class T>
inline Batch<T> exp(Batch<T> x) {
  using K = ExpConstants<T>;
  const Batch<T> clamped = quick_min(Batch<T>(K::highest), quick_max(Batch<T>(K::lowest), x));  // keeps NaN
  Batch<T> n, r;
  const Batch<T> q = exp_reduced(clamped, n, r);
  const Batch<T> p = Batch<T>(T(1)) + (r + q);
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 4)
    return _mm512_scalef_ps(p, n);
  else
    return _mm512_scalef_pd(p, n);
#else
  // In two steps, since 2^n may be out of range where the result is not.
  const Batch<T> half = fma(n, Batch<T>(T(0.5)), Batch<T>(K::magic)) - Batch<T>(K::magic);
  return (p * power_of_two(half)) * power_of_two(n - half);
#endif
}

// e^x - 1 without cancellation. Gap: xsimd's expm1 has the range of its exp.
template <class T>
inline Batch<T> expm1(Batch<T> x) {
  using K = ExpConstants<T>;
  const Batch<T> clamped = quick_min(Batch<T>(K::highest), quick_max(Batch<T>(K::minus_one), x));
  Batch<T> n, r;
  const Batch<T> q = exp_reduced(clamped, n, r);
  const Batch<T> half = power_of_two(n - Batch<T>(T(1)));  // 2^n would overflow first
  const Batch<T> y = fma(half, r + q, half - Batch<T>(T(0.5)));
  return xsimd::copysign(select(n == Batch<T>(T(0)), r + q, y + y), x);  // n = 0 keeps tiny x
}

// s(x) = 1 / (1 + e^-x), to full relative precision for both signs of x. Sets rest = 1 - s(x) = s(-x), without
// cancellation.
template <class T>
inline Batch<T> sigmoid_and_rest(Batch<T> x, Batch<T>& rest) {
  const Batch<T> e = exp(-xsimd::abs(x)), large = Batch<T>(T(1)) / (Batch<T>(T(1)) + e), small = e * large;
  const Mask<T> negative = x < Batch<T>(T(0));
  rest = select(negative, large, small);
  return select(negative, small, large);
}
template <class T>
inline Batch<T> sigmoid(Batch<T> x) {
  Batch<T> rest;
  return sigmoid_and_rest(x, rest);
}

// tanh(|x|) = -t / (t + 2) where t = e^(-2|x|) - 1.
template <class T>
inline Batch<T> tanh(Batch<T> x) {
  const Batch<T> t = expm1(Batch<T>(T(-2)) * xsimd::abs(x));
  return xsimd::copysign(t / (t + Batch<T>(T(2))), x);
}

// Constants of log. With x = 2^k m, m in [sqrt(1/2), sqrt(2)), f = m - 1, s = f / (2 + f) and z = s^2,
//   log(m) = f - (f^2/2 - s (f^2/2 + R(z)))
// with fdlibm's minimax polynomials R(z) / z, highest power first, and its two parts of ln 2 (Sun Microsystems, 1993).
template <class T>
struct LogConstants;
template <>
struct LogConstants<float> {
  using Bits = uint32_t;
  static constexpr float r[] = {0.24279078841f, 0.28498786688f, 0.40000972152f, 0.66666662693f};
  static constexpr float ln2_high = 6.9313812256e-01f, ln2_low = 9.0580006145e-06f;
  static constexpr float min_normal = 1.17549435e-38f;               // the smallest normal number
  static constexpr Bits one = 0x3f800000, root = 0x3f3504f3;         // 1, sqrt(1/2)
  static constexpr Bits fraction = 0x007fffff, integers = 0x4b000000;  // integers | n is 2^23 + n
  static constexpr float bias = 8388608.f + 127.f;
};
template <>
struct LogConstants<double> {
  using Bits = uint64_t;
  static constexpr double r[] = {1.479819860511658591e-01, 1.531383769920937332e-01, 1.818357216161805012e-01,
                                 2.222219843214978396e-01, 2.857142874366239149e-01, 3.999999999940941908e-01,
                                 6.666666666666735130e-01};
  static constexpr double ln2_high = 6.93147180369123816490e-01, ln2_low = 1.90821492927058770002e-10;
  static constexpr double min_normal = 2.2250738585072014e-308;
  static constexpr Bits one = 0x3ff0000000000000, root = 0x3fe6a09e667f3bcd;
  static constexpr Bits fraction = 0x000fffffffffffff, integers = 0x4330000000000000;
  static constexpr double bias = 4503599627370496. + 1023.;
};

// Returns f and sets k for normal x > 0; undefined for other x.
template <class T>
inline Batch<T> log_reduced(Batch<T> x, Batch<T>& k) {
  using K = LogConstants<T>;
  using Bits = Batch<typename K::Bits>;
  const Bits shifted = bits_as<typename K::Bits>(x) + Bits(K::one - K::root);
  k = bits_as<T>((shifted >> ExpConstants<T>::shift) | Bits(K::integers)) - Batch<T>(K::bias);
  return bits_as<T>((shifted & Bits(K::fraction)) + Bits(K::root)) - Batch<T>(T(1));
}

// k ln 2 + log(1 + f) + rest, for a small rest.
template <class T>
inline Batch<T> log_composed(Batch<T> k, Batch<T> f, Batch<T> rest) {
  using K = LogConstants<T>;
  const Batch<T> s = f / (Batch<T>(T(2)) + f), z = s * s, half = Batch<T>(T(0.5)) * f * f;
  const Batch<T> low = fma(s, fma(horner(K::r, z), z, half), fma(k, Batch<T>(K::ln2_low), rest));
  return fma(k, Batch<T>(K::ln2_high), f - (half - low));
}

// log(0) = -inf, log(inf) = inf, NaN below 0. Gap: xsimd's log is wrong for subnormal doubles, and its bits differ
// between levels.
template <class T>
inline Batch<T> log(Batch<T> x) {
  const Batch<T> zero(T(0)), infinity(kInfinity<T>);
  const Mask<T> small = x < Batch<T>(LogConstants<T>::min_normal);
  Batch<T> k;
  const Batch<T> f = log_reduced(select(small, x * Batch<T>(T(0x1p54)), x), k);
  const Batch<T> y = log_composed(select(small, k - Batch<T>(T(54)), k), f, zero);
  const Batch<T> none = select(x == zero, -infinity, Batch<T>(static_cast<T>(__builtin_nan(""))));
  return select(x > zero, select(x < infinity, y, x), none);
}

// log(1 + x) without cancellation: log(u) + (1 + x - u) / u for the rounded u = 1 + x, where the difference is exact.
template <class T>
inline Batch<T> log1p(Batch<T> x) {
  const Batch<T> zero(T(0)), one(T(1)), infinity(kInfinity<T>), u = one + x;
  Batch<T> k;
  const Batch<T> f = log_reduced(u, k);
  const Batch<T> lost = select(u > Batch<T>(T(2)), one - (u - x), x - (u - one));
  const Batch<T> y = xsimd::copysign(log_composed(k, f, lost / u), x);
  const Batch<T> none = select(u == zero, -infinity, Batch<T>(static_cast<T>(__builtin_nan(""))));
  return select(u > zero, select(u < infinity, y, x), none);
}

// Gap: xsimd's erf is off by 68 ulp in double and NaN for the largest arguments.
inline Batch<float> erf(Batch<float> x) {
  // Minimax polynomials of N. Juffa: x + x p(x^2) below 0.9277, 1 - e^(t p(t) - t) above.
  static constexpr float low[] = {-5.96761703e-4f, 4.99119423e-3f,  -2.67681349e-2f,
                                  1.12819925e-1f,  -3.76125336e-1f, 1.28379166e-1f};
  static constexpr float high[] = {-1.72853470e-5f, 3.83197126e-4f,  -3.88396438e-3f, 2.42546219e-2f,
                                   -1.06777877e-1f, -6.34846687e-1f, -1.28717512e-1f};
  const Batch<float> t = quick_min(Batch<float>(4.f), xsimd::abs(x));  // erf is 1 from 3.92 on
  const Batch<float> near = fma(horner(low, x * x), x, x);
  const Batch<float> far = Batch<float>(1.f) - exp(fma(horner(high, t), t, -t));
  return select(t > Batch<float>(0.927734375f), xsimd::copysign(far, x), near);
}
inline Batch<double> erf(Batch<double> x) {
  // Chebyshev fits: erf(x) / x in x^2 below 1, e^(x^2) erfc(x) in 3 / (3 + x) - 13 / 24 above.
  static constexpr double low[] = {5.9571761477489114044e-11, -1.137284885679167367e-9,  1.4659775274047435814e-8,
                                   -1.6350312701054695011e-7, 1.6461000484121368033e-6,  -1.4925595266831181565e-5,
                                   1.2055331111642710923e-4,  -8.5483269808337899052e-4, 5.2239776248180144673e-3,
                                   -2.6866170645076793248e-2, 1.1283791670954878666e-1,  -3.7612638903183748056e-1,
                                   1.1283791670955125738};
  static constexpr double high[] = {2.0974634373878025319e-2,  -4.3421538628630889193e-3, -3.8466556250071619005e-2,
                                    8.2215413249928247847e-3,  7.3622021294098533812e-2,  6.1228401722009941338e-3,
                                    -1.5614912746311272496e-1, -1.4239680041167501427e-1, 2.3927417469187474999e-1,
                                    8.4493750155417471326e-1,  1.3161233807004993978,     1.405972429961991462,
                                    1.1450521820942125368,     7.4093363661297202705e-1,  2.079832913334288618e-1};
  const Batch<double> t = quick_min(Batch<double>(6.), xsimd::abs(x)), one(1.);  // erf is 1 from 5.93 on
  const Batch<double> near = x * horner(low, x * x);
  const Batch<double> u = Batch<double>(3.) / (Batch<double>(3.) + t) - Batch<double>(13. / 24);
  const Batch<double> far = fnma(exp(-(t * t)), horner(high, u), one);
  return select(t > one, xsimd::copysign(far, x), near);
}

template <class T>
inline Batch<T> sqrt(Batch<T> x) {
#if defined(__aarch64__)
  if constexpr (sizeof(T) == 4) return vsqrtq_f32(x);  // Gap: xsimd's is x times an estimate: sqrt(inf) is NaN
#endif
  return xsimd::sqrt(x);
}
// Gap: xsimd's rsqrt does not compile on AVX-512 and is approximate elsewhere.
template <class T>
inline Batch<T> rsqrt(Batch<T> x) {
  return Batch<T>(T(1)) / sqrt(x);
}

// The tanh form of GELU: x * (1 + tanh u) / 2 = x * sigmoid(2u) with u = sqrt(2/pi) (x + 0.044715 x^3) (Hendrycks and
// Gimpel, 2016).
template <class T>
inline Batch<T> gelu_tanh(Batch<T> x) {
  const Batch<T> u2 =
      x * fma(x * x, Batch<T>(T(2 * 0.79788456080286535588 * 0.044715)), Batch<T>(T(2 * 0.79788456080286535588)));
  return x / (Batch<T>(T(1)) + exp(-u2));
}

}  // namespace heed::kernels::HEED_LEVEL

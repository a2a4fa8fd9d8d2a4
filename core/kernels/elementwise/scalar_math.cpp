// Elementary functions of float64, computed with basic arithmetic only. Functions that need more digits represent a
// value as the sum of two numbers.
#include <cmath>
#include <cstdint>
#include <heed/core/kernels/elementwise/scalar_math.hpp>
#include <limits>

namespace heed::scalar {
namespace {

constexpr double kLog2e = 1.4426950408889634074;
constexpr double kRounder = 6755399441055744.;  // 1.5 * 2^52: adding and subtracting it rounds to an integer

double nearest(double x) { return (x + kRounder) - kRounder; }

template <int N>
double polynomial(const double (&highest_first)[N], double x) {
  double y = highest_first[0];
  for (int i = 1; i < N; ++i) y = y * x + highest_first[i];
  return y;
}

// high + low, where |low| is at most half a unit in the last place of high: 106 bits (Dekker, "A floating-point
// technique for extending the available precision", 1971).
struct Double2 {
  double high, low = 0;
};

Double2 quick_sum(double a, double b) {  // needs |a| >= |b|
  const double s = a + b;
  return {s, b - (s - a)};
}
Double2 exact_sum(double a, double b) {
  const double s = a + b, t = s - a;
  return {s, (a - (s - t)) + (b - t)};
}
Double2 exact_product(double a, double b) {
  constexpr double split = 134217729;  // 2^27 + 1
  const double p = a * b, x = split * a, y = split * b;
  const double ah = x - (x - a), al = a - ah, bh = y - (y - b), bl = b - bh;
  return {p, ((ah * bh - p) + ah * bl + al * bh) + al * bl};
}
Double2 operator+(Double2 a, Double2 b) {
  const Double2 s = exact_sum(a.high, b.high), t = exact_sum(a.low, b.low);
  const Double2 u = quick_sum(s.high, s.low + t.high);
  return quick_sum(u.high, u.low + t.low);
}
Double2 operator*(Double2 a, Double2 b) {
  const Double2 p = exact_product(a.high, b.high);
  return quick_sum(p.high, p.low + (a.high * b.low + a.low * b.high));
}
Double2 negative(Double2 a) { return {-a.high, -a.low}; }

constexpr Double2 kHalfPi = {1.57079632679489655800, 6.12323399573676603587e-17};
constexpr Double2 kLn2 = {0.693147180559945309, 2.3190468138462996e-17};

// e^x = m 2^n with m in [sqrt(1/2), sqrt(2)], for |x| < 800; returns m. With r = x - n ln 2, p = e^(r / 64) - 1 is a
// Taylor series. Six steps p = (1 + p)^2 - 1 = 2p + p^2 give e^r - 1.
Double2 exp_reduced(Double2 x, double& n) {
  n = nearest(x.high * kLog2e);
  Double2 r = x + negative(kLn2 * Double2{n});
  r = {r.high / 64, r.low / 64};
  static constexpr Double2 inverse[] = {{1. / 2},
                                        {0.33333333333333331, 1.850371707708594e-17},
                                        {1. / 4},
                                        {0.20000000000000001, -1.1102230246251566e-17},
                                        {0.16666666666666666, 9.25185853854297e-18},
                                        {0.14285714285714285, 7.93016446160826e-18},
                                        {1. / 8},
                                        {0.1111111111111111, 6.1679056923619804e-18},
                                        {0.10000000000000001, -5.551115123125783e-18}};
  Double2 p = {1};  // 1 + r/2 (1 + r/3 (1 + ...))
  for (int k = 8; k >= 0; --k) p = Double2{1} + r * inverse[k] * p;
  p = r * p;
  for (int i = 0; i < 6; ++i) p = Double2{2 * p.high, 2 * p.low} + p * p;
  return Double2{1} + p;
}

double scaled(Double2 m, double n) { return std::ldexp(m.high + m.low, static_cast<int>(n)); }

// x = 2^k m with m in [sqrt(1/2), sqrt(2)), for finite x > 0; returns m.
double mantissa_of(double x, double& k) {
  int exponent = 0;
  const double m = std::frexp(x, &exponent);
  const bool low = m < 0.70710678118654752440;
  k = exponent - (low ? 1 : 0);
  return low ? 2 * m : m;
}

// log(x) for finite x > 0, to 59 bits.
Double2 quick_log(double x) {
  double k = 0;
  const double m = mantissa_of(x, k), f = m - 1;
  // log(m) = 2 s + s (2/3 z + 2/5 z^2 + ...), with s = f / (2 + f) to more than 53 bits
  const Double2 d = exact_sum(2, f);
  const double s = f / d.high, z = s * s;
  const Double2 p = exact_product(s, d.high);
  const double rest = ((f - p.high) - p.low - s * d.low) / d.high;
  double sum = 2.0 / 25;
  for (int i = 23; i >= 3; i -= 2) sum = sum * z + 2.0 / i;
  const Double2 y = kLn2 * Double2{k} + Double2{2 * s};
  return quick_sum(y.high, y.low + (2 * rest + s * z * sum));
}

// log(x) for finite x > 0, to 100 bits: from y near log(m) in float64, one step y + (m e^-y - 1).
Double2 log_of(double x) {
  double k = 0;
  const double m = mantissa_of(x, k);
  const double f = m - 1, s = f / (2 + f), z = s * s;
  double sum = 0;
  for (int i = 10; i >= 0; --i) sum = sum * z + 1. / (2 * i + 1);
  const double y = 2 * s * sum;
  double n = 0;
  Double2 e = exp_reduced({-y}, n);
  e = {std::ldexp(e.high, static_cast<int>(n)), std::ldexp(e.low, static_cast<int>(n))};
  const Double2 rest = e * Double2{m} + Double2{-1};
  return kLn2 * Double2{k} + (Double2{y} + rest);
}

double exp_of(Double2 x) {
  if (x.high > 710) return std::numeric_limits<double>::infinity();
  if (x.high < -746) return 0;
  double n = 0;
  const Double2 m = exp_reduced(x, n);
  return scaled(m, n);
}

// x = q pi/2 + (r.high + r.low), |r| <= pi/4. pi/2 is the sum of three numbers.
Double2 reduce_angle(double x, int& quadrant) {
  const double q = nearest(x * 0.63661977236758134308);
  const double quarter = q - 4 * nearest(q * 0.25 - 0.375);  // 0 to 3
  quadrant = static_cast<int>(quarter);
  Double2 r = Double2{x} + negative(exact_product(q, kHalfPi.high));
  r = r + negative(exact_product(q, kHalfPi.low));
  return r + Double2{q * 1.49738490485916983294e-33};
}

// The same for |x| >= 2^30, from the bits of 2 / pi (Payne and Hanek, 1983). With |x| = m 2^e, bits that contribute
// multiples of 4 are left out, and the next 192 bits are multiplied by m.
Double2 reduce_far_angle(double x, int& quadrant) {
  static constexpr std::uint64_t two_over_pi[] = {
      0xa2f9836e4e441529, 0xfc2757d1f534ddc0, 0xdb6295993c439041, 0xfe5163abdebbc561, 0xb7246e3a424dd2e0,
      0x06492eea09d1921c, 0xfe1deb1cb129a73e, 0xe88235f52ebb4484, 0xe99c7026b45f7e41, 0x3991d639835339f4,
      0x9c845f8bbdf9283b, 0x1ff897ffde05980f, 0xef2f118b5a0a6d1f, 0x6d367ecf27cb09b7, 0x4f463f669e5fea2d,
      0x7527bac7ebe5f17b, 0x3d0739f78a5292ea, 0x6bfb5fb11f8d5d08, 0x56033046fc7b6bab, 0xf0cfbc209af4361d};
  int e = 0;
  const auto m = static_cast<std::uint64_t>(std::ldexp(std::frexp(std::fabs(x), &e), 53));
  // Word i of the bits that start at bit number e - 54, where bit 1 is the first after the point. Earlier bits are 0.
  const auto bits = [first = e - 55](int i) {
    const auto word = [](int n) { return n < 0 ? 0 : two_over_pi[n]; };
    const int at = first + 64 * i + 64, n = at / 64 - 1, shift = at % 64;
    return shift == 0 ? word(n) : word(n) << shift | word(n + 1) >> (64 - shift);
  };
  // v / 2^190 = x 2/pi, without multiples of 4; v = (high, middle, low)
  using Wide = unsigned __int128;
  const Wide low = Wide{bits(2)} * m, middle = Wide{bits(1)} * m + static_cast<std::uint64_t>(low >> 64);
  const std::uint64_t high = bits(0) * m + static_cast<std::uint64_t>(middle >> 64);
  const std::uint64_t next = static_cast<std::uint64_t>(middle), last = static_cast<std::uint64_t>(low);
  // the nearest integer, and the signed remainder
  const std::uint64_t rounded = high + (std::uint64_t{1} << 61);
  const int q = static_cast<int>(rounded >> 62);
  const auto rest = static_cast<std::int64_t>(high - (rounded & (std::uint64_t{3} << 62)));
  const Wide below = Wide{next} << 32 | last >> 32;  // 96 bits
  Double2 r = exact_sum(std::ldexp(static_cast<double>(rest >> 10), 10 - 62),
                        std::ldexp(static_cast<double>(rest & 1023), -62));
  r = r + Double2{std::ldexp(static_cast<double>(static_cast<std::uint64_t>(below >> 48)), 48 - 158)};
  r = r + Double2{std::ldexp(static_cast<double>(static_cast<std::uint64_t>(below & 0xffffffffffff)), -158)};
  r = r * kHalfPi;
  quadrant = (x < 0 ? -q : q) & 3;
  return x < 0 ? negative(r) : r;
}

// Taylor series on |r| <= pi/4. The first terms left out are below 2^-58 of the sums.
double sin_near(Double2 r) {
  static constexpr double c[] = {1.0 / 355687428096000, -1.0 / 1307674368000, 1.0 / 6227020800, -1.0 / 39916800,
                                 1.0 / 362880,          -1.0 / 5040,          1.0 / 120,        -1.0 / 6};
  const double x = r.high, z = x * x;
  return x + (x * z * polynomial(c, z) + r.low * (1 - 0.5 * z));
}
double cos_near(Double2 r) {
  static constexpr double c[] = {-1.0 / 6402373705728000, 1.0 / 20922789888000, -1.0 / 87178291200, 1.0 / 479001600,
                                 -1.0 / 3628800,          1.0 / 40320,          -1.0 / 720,         1.0 / 24};
  const double x = r.high, z = x * x, half = 0.5 * z, one = 1 - half;
  return one + (((1 - one) - half) + (z * z * polynomial(c, z) - x * r.low));
}

// cos(x), or sin(x) / x if `sine`, with more digits: 1 - z (a - z (b - z (c - z (d - ...)))) with z = x^2. The first
// coefficients are sums of two numbers.
Double2 near_in_two(Double2 x, bool sine) {
  static constexpr Double2 first[2][3] = {
      {{0.001388888888888889, -5.300543954373577e-20}, {0.041666666666666664, 2.3129646346357427e-18}, {0.5}},
      {{0.0001984126984126984, 1.7209558293420705e-22},
       {0.008333333333333333, 1.1564823173178714e-19},
       {0.16666666666666666, 9.25185853854297e-18}}};
  static constexpr double rest[2][7] = {
      {1.0 / 2432902008176640000, 1.0 / 6402373705728000, 1.0 / 20922789888000, 1.0 / 87178291200, 1.0 / 479001600,
       1.0 / 3628800, 1.0 / 40320},
      {1.0 / 51090942171709440000.0, 1.0 / 121645100408832000, 1.0 / 355687428096000, 1.0 / 1307674368000,
       1.0 / 6227020800, 1.0 / 39916800, 1.0 / 362880}};
  const Double2 z = x * x;
  double small = rest[sine][0];
  for (int i = 1; i < 7; ++i) small = rest[sine][i] - z.high * small;
  Double2 sum = {small};
  for (const Double2 term : first[sine]) sum = term + negative(z * sum);
  return Double2{1} + negative(z * sum);
}

// sin(x + turns pi/2)
double sin_turned(double x, int turns) {
  if (!std::isfinite(x)) return x - x;
  int q = 0;
  const Double2 r = std::fabs(x) < 0x1p30 ? reduce_angle(x, q) : reduce_far_angle(x, q);
  q = (q + turns) & 3;
  const double y = q % 2 == 0 ? sin_near(r) : cos_near(r);
  return q < 2 ? y : -y;
}

// x^y for finite x > 0.
double power_of_size(double x, double y) {
  return exp_of(std::fabs(y) > 1e20 ? Double2{quick_log(x).high * y} : log_of(x) * Double2{y});
}

// 1 - normal_cdf(x) for x >= 0: a series with odd factorials below 1.25, Laplace's continued fraction above.
double upper_tail(double x) {
  const double density = 0.39894228040143267794 * exp(-0.5 * x * x);
  if (x < 1.25) {
    double term = x, sum = x;
    for (int k = 1; k < 60; ++k) sum += term *= x * x / (2 * k + 1);
    return 0.5 - density * sum;
  }
  double fraction = x;
  for (int k = 300; k > 0; --k) fraction = x + k / fraction;
  return density / fraction;
}

}  // namespace

// n ln 2 is subtracted in two parts. The first has so few bits that its product with n is exact. Then
// e^r = 1 + (r + r^2 P(r)), where only the rounding of the last sum matters.
double exp(double x) {
  if (!(x > -746 && x < 710)) return std::isnan(x) ? x : x > 0 ? std::numeric_limits<double>::infinity() : 0;
  const double n = nearest(x * kLog2e);
  const double high = x - n * 6.93147180369123816490e-01, low = n * 1.90821492927058770002e-10, r = high - low;
  const double lost = (high - r) - low;
  static constexpr double c[] = {1.0 / 87178291200, 1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800,
                                 1.0 / 362880,      1.0 / 40320,      1.0 / 5040,      1.0 / 720,      1.0 / 120,
                                 1.0 / 24,          1.0 / 6,          0.5};
  const Double2 sum = quick_sum(1, r);
  return scaled({sum.high, sum.low + (lost + lost * r + r * r * polynomial(c, r))}, n);
}

double exp2(double x) {
  if (!(x > -1100 && x < 1100)) return std::isnan(x) ? x : x > 0 ? std::numeric_limits<double>::infinity() : 0;
  const double n = nearest(x);
  double more = 0;
  const Double2 m = exp_reduced(kLn2 * Double2{x - n}, more);
  return scaled(m, n + more);
}

double log(double x) {
  // special cases, for which the library is exact
  if (!(x > 0 && x < std::numeric_limits<double>::infinity())) return std::log(x);
  const Double2 y = quick_log(x);
  return y.high + y.low;
}

double pow(double x, double y) {
  const bool special = x == 1 || y == 0 || x == 0 || !std::isfinite(x) || !std::isfinite(y) ||
                       (x < 0 && nearest(y) != y && std::fabs(y) < 0x1p51);
  if (special) return std::pow(x, y);  // special cases, for which the library is exact
  const double size = power_of_size(std::fabs(x), y);
  return x < 0 && std::fmod(y, 2) != 0 ? -size : size;
}

double quick_sin(double x) { return x == 0 ? x : sin_turned(x, 0); }
double quick_cos(double x) { return sin_turned(x, 1); }

double cos(double x) {
  if (!std::isfinite(x)) return x - x;
  int q = 0;
  const Double2 r = std::fabs(x) < 0x1p30 ? reduce_angle(x, q) : reduce_far_angle(x, q);
  const Double2 y = q % 2 == 0 ? near_in_two(r, false) : r * near_in_two(r, true);
  return q == 1 || q == 2 ? -(y.high + y.low) : y.high + y.low;
}

double normal_cdf(double x) { return std::isnan(x) ? x : x < 0 ? upper_tail(-x) : 1 - upper_tail(x); }

// Wichura, "Algorithm AS 241: The percentage points of the normal distribution", 1988, to 1e-16.
double normal_quantile(double p) {
  static constexpr double a[] = {2.5090809287301226727e+3, 3.3430575583588128105e+4, 6.7265770927008700853e+4,
                                 4.5921953931549871457e+4, 1.3731693765509461125e+4, 1.9715909503065514427e+3,
                                 1.3314166789178437745e+2, 3.3871328727963666080e+0};
  static constexpr double b[] = {5.2264952788528545610e+3, 2.8729085735721942674e+4, 3.9307895800092710610e+4,
                                 2.1213794301586595867e+4, 5.3941960214247511077e+3, 6.8718700749205790830e+2,
                                 4.2313330701600911252e+1, 1.0};
  static constexpr double c[] = {7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1,
                                 1.27045825245236838258e+0, 3.64784832476320460504e+0, 5.76949722146069140550e+0,
                                 4.63033784615654529590e+0, 1.42343711074968357734e+0};
  static constexpr double d[] = {1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2,
                                 1.48103976427480074590e-1, 6.89767334985100004550e-1, 1.67638483018380384940e+0,
                                 2.05319162663775882187e+0, 1.0};
  static constexpr double e[] = {2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3,
                                 2.65321895265761230930e-2, 2.96560571828504891230e-1, 1.78482653991729133580e+0,
                                 5.46378491116411436990e+0, 6.65790464350110377720e+0};
  static constexpr double f[] = {2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5,
                                 7.86869131145613259100e-4,  1.48753612908506148525e-2, 1.36929880922735805310e-1,
                                 5.99832206555887937690e-1,  1.0};
  const double q = p - 0.5;
  if (std::fabs(q) <= 0.425) {
    const double r = 0.180625 - q * q;
    return q * polynomial(a, r) / polynomial(b, r);
  }
  const double tail = q < 0 ? p : 1 - p;
  if (!(tail > 0)) {
    const auto beyond = tail == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
    return std::copysign(beyond, q);
  }
  const double r = std::sqrt(-log(tail));
  const double x =
      r <= 5 ? polynomial(c, r - 1.6) / polynomial(d, r - 1.6) : polynomial(e, r - 5) / polynomial(f, r - 5);
  return q < 0 ? -x : x;
}

}  // namespace heed::scalar

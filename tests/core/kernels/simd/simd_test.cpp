// Guarantees of simd.hpp, each tested on every level.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <heed/core/dtype.hpp>
#include <limits>
#include <vector>

#include "tests/core/levels.hpp"
#include "tests/kernels/simd_probe.hpp"
#include "tests/support.hpp"

using namespace heed;
using heed::test::on_each_level;
using kernels::SimdFunction;

namespace {

template <class T>
const kernels::SimdProbe<T>& probe() {
  return kernels::of<T>(kernels::simd_probes());
}

template <class T>
std::vector<T> results_of(SimdFunction f, const std::vector<T>& x) {
  std::vector<T> y(x.size(), T(-77));
  probe<T>().apply(f, x.data(), y.data(), x.size());
  return y;
}

long double exact(SimdFunction f, long double x) {
  switch (f) {
    case SimdFunction::exp: return std::exp(x);
    case SimdFunction::expm1: return std::expm1(x);
    case SimdFunction::log: return std::log(x);
    case SimdFunction::log1p: return std::log1p(x);
    case SimdFunction::tanh: return std::tanh(x);
    case SimdFunction::erf: return std::erf(x);
    case SimdFunction::sigmoid: return 1 / (1 + std::exp(-x));
    case SimdFunction::gelu_tanh: {
      const long double u = 0.79788456080286535588L * (x + 0.044715L * x * x * x);
      return x / (1 + std::exp(-2 * u));
    }
    case SimdFunction::gelu_exact: return x * std::erfc(-x * 0.70710678118654752440L) / 2;
    case SimdFunction::sqrt: return std::sqrt(x);
    case SimdFunction::rsqrt: return 1 / std::sqrt(x);
  }
  return 0;
}

// y - expected| in units of the last place of expected.
template <class T>
double ulps(T y, long double expected) {
  const T rounded = static_cast<T>(expected);
  if (y == rounded || (std::isnan(y) && std::isnan(rounded))) return 0;
  if (!std::isfinite(y) || !std::isfinite(rounded)) return 1e30;
  int e;
  std::frexp(rounded, &e);
  const int lowest = std::numeric_limits<T>::min_exponent - std::numeric_limits<T>::digits;
  const long double ulp = std::ldexp(1.0L, std::max(e - std::numeric_limits<T>::digits, lowest));
  return static_cast<double>(std::abs(static_cast<long double>(y) - expected) / ulp);
}

template <class T>
std::vector<T> grid(double low, double high, int n) {
  std::vector<T> x;
  n = heed::test::thinned(n, n / 50);
  for (int i = 0; i <= n; ++i) x.push_back(static_cast<T>(low + (high - low) * i / n));
  return x;
}

template <class T>
std::vector<T> powers(double low, double high, int n, bool both_signs) {
  std::vector<T> x;
  n = heed::test::thinned(n, n / 50);
  for (int i = 0; i <= n; ++i) {
    x.push_back(static_cast<T>(std::exp2(low + (high - low) * i / n)));
    if (both_signs) x.push_back(-x.back());
  }
  return x;
}

template <class T>
double worst(SimdFunction f, const std::vector<T>& x) {
  const std::vector<T> y = results_of(f, x);
  double w = 0;
  std::size_t at = 0;
  for (std::size_t i = 0; i < x.size(); ++i)
    if (const double u = ulps(y[i], exact(f, x[i])); u > w) w = u, at = i;
  INFO("worst at ", x[at], ": ", y[at]);
  return w;
}

template <class T>
void check_accuracy() {
  const double range = sizeof(T) == 4 ? 88 : 709, tiny = sizeof(T) == 4 ? -120 : -1000;
  const double subnormal = sizeof(T) == 4 ? 104 : 746;
  CHECK(worst<T>(SimdFunction::exp, grid<T>(-range, range, 200001)) < 1.5);
  CHECK(worst<T>(SimdFunction::exp, grid<T>(range, range + 1, 1001)) < 1.5);
  CHECK(worst<T>(SimdFunction::exp, grid<T>(-subnormal, -range + 2, 20001)) < 1.5);
  CHECK(worst<T>(SimdFunction::expm1, grid<T>(-60, range + 1, 200001)) < 2.5);
  CHECK(worst<T>(SimdFunction::expm1, powers<T>(tiny, 3, 50000, true)) < 2.5);
  CHECK(worst<T>(SimdFunction::tanh, grid<T>(-25, 25, 200001)) < 3);
  CHECK(worst<T>(SimdFunction::tanh, powers<T>(tiny, 9, 50000, true)) < 3);
  CHECK(worst<T>(SimdFunction::sigmoid, grid<T>(-range, range, 200001)) < 3);
  CHECK(worst<T>(SimdFunction::log, powers<T>(tiny, -tiny, 200000, false)) < 1.5);
  CHECK(worst<T>(SimdFunction::log, grid<T>(0.5, 2, 100001)) < 1.5);
  CHECK(worst<T>(SimdFunction::log1p, powers<T>(tiny, -1, 50000, true)) < 2.5);
  CHECK(worst<T>(SimdFunction::log1p, powers<T>(-1, -tiny, 50000, false)) < 2.5);
  CHECK(worst<T>(SimdFunction::erf, grid<T>(-7, 7, 200001)) < 3);
  CHECK(worst<T>(SimdFunction::erf, powers<T>(tiny, 5, 50000, true)) < 3);
  CHECK(worst<T>(SimdFunction::sqrt, powers<T>(tiny, -tiny, 50000, false)) <= 0.5);
  CHECK(worst<T>(SimdFunction::rsqrt, powers<T>(tiny, -tiny, 50000, false)) < 1.6);
}

// GELU cancels for large negative x, as its formula does, so errors are relative to max(|x|, |y|).
template <class T>
void check_gelu() {
  for (const SimdFunction f : {SimdFunction::gelu_tanh, SimdFunction::gelu_exact}) {
    const std::vector<T> x = grid<T>(-12, 12, 100001), y = results_of(f, x);
    double w = 0;
    for (std::size_t i = 0; i < x.size(); ++i)
      w = std::max(w, static_cast<double>(std::abs(y[i] - exact(f, x[i])) / (std::abs(x[i]) + 1e-30L)));
    CHECK(w < 3 * std::numeric_limits<T>::epsilon());
  }
}

template <class T>
void check_special_values() {
  const T inf = std::numeric_limits<T>::infinity(), nan = std::numeric_limits<T>::quiet_NaN();
  const T big = std::numeric_limits<T>::max(), small = std::numeric_limits<T>::denorm_min();
  const std::vector<T> x = {inf, -inf, nan, big, -big, T(0), -T(0), small, -small, T(1), T(-1), T(89), T(-89)};
  for (const SimdFunction f : {SimdFunction::exp, SimdFunction::expm1, SimdFunction::log, SimdFunction::log1p,
                               SimdFunction::tanh, SimdFunction::erf, SimdFunction::sigmoid}) {
    const std::vector<T> y = results_of(f, x);
    for (std::size_t i = 0; i < x.size(); ++i) {
      CAPTURE(static_cast<int>(f));
      CAPTURE(x[i]);
      CAPTURE(y[i]);
      CHECK(ulps(y[i], exact(f, x[i])) < 3);
      if (x[i] == 0) CHECK(std::signbit(y[i]) == std::signbit(static_cast<T>(exact(f, x[i]))));
    }
  }
}

template <class T>
void check_parts() {
  const int w = probe<T>().width;
  std::vector<T> x, y(w);
  for (int i = 0; i < w; ++i) x.push_back(T(i + 1));
  for (int n = 0; n <= w; ++n) {
    const std::vector<T> exactly(x.begin(), x.begin() + n);  // an exact allocation, so that the sanitizer detects a
                                                             // read beyond it
    probe<T>().copy_part(exactly.data(), y.data(), n, T(-5));
    bool ok = true;
    for (int i = 0; i < w; ++i) ok &= y[i] == (i < n ? x[i] : T(-5));
    std::vector<T> z(w, T(9));
    probe<T>().store_part(z.data(), x.data(), n);
    for (int i = 0; i < w; ++i) ok &= z[i] == (i < n ? x[i] : T(9));
    CAPTURE(n);
    CHECK(ok);
  }
}

template <class T>
void check_lanes() {
  const T nan = std::numeric_limits<T>::quiet_NaN(), inf = std::numeric_limits<T>::infinity();
  const T values[] = {nan, inf, -inf, T(0), T(1), T(-3), T(2.5)};
  const int w = probe<T>().width;
  std::vector<T> x(w), y(w), out(w);
  bool ok = true;
  for (const T a : values)
    for (const T b : values) {
      for (int i = 0; i < w; ++i) x[i] = i % 2 ? a : b, y[i] = i % 2 ? b : a;
      const auto expected = [&](int i, bool greatest) {
        if (std::isnan(x[i]) || std::isnan(y[i])) return nan;
        return greatest ? std::max(x[i], y[i]) : std::min(x[i], y[i]);
      };
      const auto same = [](T p, T q) { return p == q || (std::isnan(p) && std::isnan(q)); };
      probe<T>().max(x.data(), y.data(), out.data());
      for (int i = 0; i < w; ++i) ok &= same(out[i], expected(i, true));
      probe<T>().min(x.data(), y.data(), out.data());
      for (int i = 0; i < w; ++i) ok &= same(out[i], expected(i, false));
      // quick_max and quick_min return NaN if the second operand is NaN, on any machine: exp, softmax and losses depend
      // on this.
      probe<T>().quick_max(x.data(), y.data(), out.data());
      for (int i = 0; i < w; ++i) ok &= std::isnan(x[i]) && !std::isnan(y[i]) ? true : same(out[i], expected(i, true));
      probe<T>().quick_min(x.data(), y.data(), out.data());
      for (int i = 0; i < w; ++i) ok &= std::isnan(x[i]) && !std::isnan(y[i]) ? true : same(out[i], expected(i, false));
      probe<T>().masks(x.data(), y.data(), out.data());
      const bool every = a < b && b < a, some = a < b || (b < a && w > 1);
      for (int i = 0; i < w; ++i)
        ok &= out[i] == (x[i] < y[i]) + 2 * (x[i] != y[i]) + 4 * std::isnan(x[i]) + 16 * every + 32 * some;
    }
  CHECK(ok);
}

template <class T>
void check_reductions() {
  const int w = probe<T>().width;
  T out[3];
  for (int spot = 0; spot < w; ++spot) {
    std::vector<T> x(w);
    T sum = 0;
    for (int i = 0; i < w; ++i) sum += x[i] = T((i * 7) % 5 - 2);
    x[spot] += 100;
    probe<T>().reduce(x.data(), out);
    CHECK(out[0] == sum + 100);
    CHECK(out[1] == x[spot]);
    x[spot] -= 200;
    probe<T>().reduce(x.data(), out);
    CHECK(out[2] == x[spot]);
    x[spot] = std::numeric_limits<T>::quiet_NaN();
    probe<T>().reduce(x.data(), out);
    CHECK(std::isnan(out[0]));
    CHECK(std::isnan(out[1]));
    CHECK(std::isnan(out[2]));
  }
}

// x * x - round(x * x) is exact only with a fused multiply-add.
template <class T>
void check_fma() {
  const int w = probe<T>().width;
  const T a = 1 + std::numeric_limits<T>::epsilon();
  std::vector<T> x(w, a), z(w, -(a * a)), out(w);
  probe<T>().fma(x.data(), x.data(), z.data(), out.data());
#if defined(__x86_64__)
  const bool fused = kernels::level() != kernels::Level::baseline;
#else
  const bool fused = true;
#endif
  for (int i = 0; i < w; ++i) CHECK(out[i] == (fused ? std::fma(a, a, -(a * a)) : T(0)));
}

// Division is rounded once for the smallest to the largest numbers, never estimated.
template <class T>
void check_division() {
  const T inf = std::numeric_limits<T>::infinity(), big = std::numeric_limits<T>::max();
  const T small = std::numeric_limits<T>::denorm_min(), normal = std::numeric_limits<T>::min();
  const std::vector<T> values = {T(1), T(-3), T(10), T(1e-39), normal / 4, normal, small,
                                 big,  inf,   -inf,  T(0),     T(-0.0),    T(0.1)};
  const int w = probe<T>().width;
  std::vector<T> x(w), y(w), out(w);
  bool ok = true;
  for (const T a : values)
    for (const T b : values) {
      std::fill(x.begin(), x.end(), a);
      std::fill(y.begin(), y.end(), b);
      probe<T>().divide(x.data(), y.data(), out.data());
      const T expected = a / b;
      for (const T q : out)
        ok &= (std::isnan(q) && std::isnan(expected)) || (q == expected && std::signbit(q) == std::signbit(expected));
    }
  CHECK(ok);
  const std::vector<T> roots = results_of(SimdFunction::sqrt, std::vector<T>{inf, T(0), big, small, T(2), T(-1)});
  CHECK(roots[0] == inf);
  CHECK(roots[1] == 0);
  CHECK(roots[2] == std::sqrt(big));
  CHECK(roots[3] == std::sqrt(small));
  CHECK(roots[4] == std::sqrt(T(2)));
  CHECK(std::isnan(roots[5]));
}

template <class T>
void check_all() {
  check_accuracy<T>();
  check_gelu<T>();
  check_special_values<T>();
  check_parts<T>();
  check_reductions<T>();
  check_fma<T>();
}

}  // namespace

TEST_CASE("simd: float32 functions agree with long double libm") { on_each_level(check_all<float>); }
TEST_CASE("simd: float64 functions agree with long double libm") { on_each_level(check_all<double>); }

TEST_CASE("simd: max and min return NaN if an operand is NaN, whatever xsimd and the machine do") {
  on_each_level(check_lanes<float>);
  on_each_level(check_lanes<double>);
}

TEST_CASE("simd: quotients and square roots are rounded once, infinities and subnormal numbers too") {
  on_each_level(check_division<float>);
  on_each_level(check_division<double>);
}

TEST_CASE("simd: every bfloat16 converts exactly") {
  on_each_level([] {
    std::vector<std::uint16_t> h(65536);
    for (int i = 0; i < 65536; ++i) h[i] = static_cast<std::uint16_t>(i);
    std::vector<float> x(65536);
    kernels::simd_probes().from_bf16(h.data(), x.data(), x.size());
    int wrong = 0;
    for (int i = 0; i < 65536; ++i) wrong += std::bit_cast<std::uint32_t>(x[i]) != static_cast<std::uint32_t>(i) << 16;
    CHECK(wrong == 0);
    for (std::size_t n = 0; n <= 33; ++n) {  // tails
      std::vector<float> z(40, 7);
      kernels::simd_probes().from_bf16(h.data() + 16000, z.data(), n);
      for (std::size_t i = 0; i < 40; ++i) wrong += z[i] != (i < n ? x[16000 + i] : 7);
    }
    CHECK(wrong == 0);
  });
}

// Functions of single numbers: accuracy against long double, special cases of the C library, and stored bits.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <heed/core/kernels/elementwise/scalar_math.hpp>
#include <limits>
#include <string>
#include <vector>

using namespace heed;

namespace {

using Function = std::function<double(double)>;
using Exact = std::function<long double(long double)>;

struct Case {
  std::string name;
  Function f;
  Exact exact;
  double low, high;  // range of the argument, or of its logarithm
  bool logarithmic;
  double ulps;
};

long double upper_tail(long double x) { return std::erfc(x * 0.70710678118654752440084436210485L) / 2; }

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"exp", scalar::exp, [](long double x) { return std::exp(x); }, -700, 700, false, 0.65},
      {"exp near 0", scalar::exp, [](long double x) { return std::exp(x); }, -1, 1, false, 0.65},
      {"exp2", scalar::exp2, [](long double x) { return std::exp2(x); }, -1000, 1000, false, 0.51},
      {"log", scalar::log, [](long double x) { return std::log(x); }, -700, 700, true, 0.53},
      {"log near 1", scalar::log, [](long double x) { return std::log(x); }, 0.9, 1.1, false, 0.53},
      {"sin", scalar::quick_sin, [](long double x) { return std::sin(x); }, -30, 30, false, 0.8},
      {"sin of large angles", scalar::quick_sin, [](long double x) { return std::sin(x); }, 1, 40, true, 0.8},
      {"cos", scalar::cos, [](long double x) { return std::cos(x); }, -30, 30, false, 0.501},
      {"cos of large angles", scalar::cos, [](long double x) { return std::cos(x); }, 1, 40, true, 0.501},
      {"quick cos", scalar::quick_cos, [](long double x) { return std::cos(x); }, -30, 30, false, 0.8},
      {"0.9^x", [](double x) { return scalar::pow(0.9, x); }, [](long double x) { return std::pow(0.9, x); }, 0, 1000,
       false, 0.51},
      {"x^-2.5", [](double x) { return scalar::pow(x, -2.5); }, [](long double x) { return std::pow(x, -2.5L); }, -200,
       200, true, 0.51},
      {"normal_cdf", scalar::normal_cdf, [](long double x) { return upper_tail(-x); }, -8, 8, false, 50},
  };
  return all;
}

std::vector<double> arguments(const Case& c) {
  std::vector<double> x;
  for (int i = 1; i <= 4000; ++i) {
    const double u = c.low + (c.high - c.low) * std::fmod(0.6180339887498949 * i, 1.0);
    x.push_back(c.logarithmic ? std::exp2(u * 1.4426950408889634) : u);
  }
  return x;
}

bool same(double a, double b) {
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b) || (std::isnan(a) && std::isnan(b));
}

}  // namespace

TEST_CASE("scalar_math: errors are a fraction of an ulp compared with long double") {
  for (const Case& c : cases()) {
    CAPTURE(c.name);
    double worst = 0;
    for (const double x : arguments(c)) {
      const long double expected = c.exact(x);
      const double nearest = static_cast<double>(expected), size = std::fabs(nearest);
      const double ulp = std::nextafter(size, std::numeric_limits<double>::infinity()) - size;
      worst = std::max(worst, static_cast<double>(std::fabs((c.f(x) - expected) / ulp)));
    }
    CHECK(worst <= c.ulps);
    CHECK(worst > 0.4);  // no more digits than float64 has
  }
}

TEST_CASE("scalar_math: the quantile undoes the distribution function") {
  for (int i = 0; i <= 320; ++i) {
    const double x = -8 + i * 0.025;  // up to 0, because above 0 the rounding of the probability hides x
    const double p = static_cast<double>(upper_tail(-static_cast<long double>(x)));
    CHECK(std::fabs(scalar::normal_quantile(p) - x) <= 2e-15 * std::max(1.0, std::fabs(x)));
    CHECK(std::fabs(scalar::normal_quantile(1 - p) + x) <= 2e-16 / (0.39 * std::exp(-0.5 * x * x)) + 2e-15 * 8);
  }
  CHECK(scalar::normal_quantile(0.5) == 0);
  CHECK(scalar::normal_quantile(0) == -std::numeric_limits<double>::infinity());
  CHECK(scalar::normal_quantile(1) == std::numeric_limits<double>::infinity());
  CHECK(std::isnan(scalar::normal_quantile(-0.1)));
  CHECK(std::isnan(scalar::normal_quantile(std::nan(""))));
}

TEST_CASE("scalar_math: special arguments give the results of the C library") {
  constexpr double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  const double tiny = std::numeric_limits<double>::denorm_min();
  const std::vector<double> special = {0.0,  -0.0, 1,    -1,  2,    -2,    3,      -3,   0.5,
                                       -0.5, inf,  -inf, nan, tiny, 1e308, -1e308, 1e300};
  for (const double x : special) {
    CAPTURE(x);
    CHECK(same(scalar::exp(x), std::exp(x)));
    CHECK(same(scalar::exp2(x), std::exp2(x)));
    CHECK(same(scalar::log(x), std::log(x)));
    CHECK(std::isnan(scalar::quick_sin(x)) == std::isnan(std::sin(x)));
    CHECK(std::isnan(scalar::cos(x)) == std::isnan(std::cos(x)));
    if (x == 0) CHECK(same(scalar::quick_sin(x), x));
    for (const double y : special) {
      CAPTURE(y);
      CHECK(same(scalar::pow(x, y), std::pow(x, y)));
    }
  }
  for (const double x : {709.78, 709.79, -744.4, -745.2, -708.5, -740.0}) CHECK(same(scalar::exp(x), std::exp(x)));
  for (int n = -1074; n < 1024; ++n) CHECK(scalar::exp2(n) == std::ldexp(1.0, n));
  for (int n = 0; n <= 22; ++n) CHECK(scalar::pow(10, n) == std::round(std::pow(10.0L, n)));
}

// FNV-1a over all results, which is the same on every machine.
TEST_CASE("scalar_math: the results have the stored bits") {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const Case& c : cases()) {
    if (c.logarithmic) continue;  // these arguments are computed by the C library
    for (const double x : arguments(c)) hash = (hash ^ std::bit_cast<std::uint64_t>(c.f(x))) * 0x100000001b3;
  }
  for (int i = 1; i < 1000; ++i) {
    const double p = i * 0x1p-10;
    hash = (hash ^ std::bit_cast<std::uint64_t>(scalar::normal_quantile(p))) * 0x100000001b3;
    hash = (hash ^ std::bit_cast<std::uint64_t>(scalar::pow(i, -0.37))) * 0x100000001b3;
    hash = (hash ^ std::bit_cast<std::uint64_t>(scalar::quick_sin(std::ldexp(i, i)))) * 0x100000001b3;
  }
  CHECK(hash == 6493500452093240015u);
}

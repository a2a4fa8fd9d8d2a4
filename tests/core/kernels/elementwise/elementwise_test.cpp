// Each elementwise kernel on every level against plain loops in long double, at widths around the vector length.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <heed/core/kernels/elementwise/ops.hpp>
#include <limits>
#include <string>
#include <vector>

#include "tests/core/levels.hpp"

using heed::test::on_each_float_level;
using namespace heed::kernels;

namespace {

using Real = long double;

// |y - expected| in units of epsilon * max(|expected|, floor).
template <class T>
double error_of(T y, Real expected, Real floor) {
  if (std::isnan(y) || std::isnan(expected)) return std::isnan(y) && std::isnan(expected) ? 0 : 1e30;
  if (static_cast<Real>(y) == expected) return 0;
  const Real unit = std::numeric_limits<T>::epsilon() * std::max(std::fabs(expected), floor);
  return static_cast<double>(std::fabs(static_cast<Real>(y) - expected) / unit);
}

Real sigmoid(Real x) { return 1 / (1 + std::exp(-x)); }
Real normal_cdf(Real x) { return std::erfc(-x / std::sqrt(2.0L)) / 2; }
constexpr Real kPi = 3.14159265358979323846L;
Real gelu_angle(Real x) { return 2 * std::sqrt(2 / kPi) * (x + 0.044715L * x * x * x); }

struct UnaryCase {
  std::string name;
  const UnaryKernel& (*kernel)();
  std::function<Real(Real)> f, slope;
  double low, high;
  bool keeps_output = false;
  double a = 0, b = 0;
  bool absolute = false;  // terms cancel, so errors are relative to |x|, for the slope to max(|x|, 1)
  double max_ulps = 3, max_slope = 4;
};

const std::vector<UnaryCase>& unary_cases() {
  using R = Real;
  static const std::vector<UnaryCase> cases = {
      {"neg", unary<"neg">, [](R x) { return -x; }, [](R) { return -1; }, -9, 9},
      {"abs", unary<"abs">, [](R x) { return std::fabs(x); }, [](R x) { return (x > 0) - (x < 0); }, -9, 9},
      {"sign", unary<"sign">, [](R x) { return (x > 0) - (x < 0); }, [](R) { return 0; }, -9, 9},
      {"square", unary<"square">, [](R x) { return x * x; }, [](R x) { return 2 * x; }, -9, 9},
      {"sqrt", unary<"sqrt">, [](R x) { return std::sqrt(x); }, [](R y) { return 0.5L / y; }, 0.01, 99, true},
      {"rsqrt", unary<"rsqrt">, [](R x) { return 1 / std::sqrt(x); }, [](R y) { return -0.5L * y * y * y; }, 0.01, 9,
       true},
      {"exp", unary<"exp">, [](R x) { return std::exp(x); }, [](R y) { return y; }, -87, 88, true},
      {"expm1", unary<"expm1">, [](R x) { return std::expm1(x); }, [](R y) { return y + 1; }, -20, 20, true, 0, 0,
       true},
      {"log", unary<"log">, [](R x) { return std::log(x); }, [](R x) { return 1 / x; }, 1e-6, 99},
      {"log1p", unary<"log1p">, [](R x) { return std::log1p(x); }, [](R x) { return 1 / (1 + x); }, -0.9, 99},
      {"sin", unary<"sin">, [](R x) { return std::sin(x); }, [](R x) { return std::cos(x); }, -9000, 9000},
      {"cos", unary<"cos">, [](R x) { return std::cos(x); }, [](R x) { return -std::sin(x); }, -9000, 9000},
      {"sin near", unary<"sin">, [](R x) { return std::sin(x); }, [](R x) { return std::cos(x); }, -7, 7},
      {"sin far", unary<"sin">, [](R x) { return std::sin(x); }, [](R x) { return std::cos(x); }, -3e6, 3e6},
      {"erf", unary<"erf">, [](R x) { return std::erf(x); },
       [](R x) { return 2 / std::sqrt(kPi) * std::exp(-x * x); }, -7, 7, false, 0, 0, true},
      {"pow 2", unary<"pow">, [](R x) { return x * x; }, [](R x) { return 2 * x; }, -9, 9, false, 2},
      {"pow -2", unary<"pow">, [](R x) { return 1 / (x * x); }, [](R x) { return -2 / (x * x * x); }, 0.5, 9, false,
       -2},
      {"pow 1.5", unary<"pow">, [](R x) { return std::pow(x, 1.5L); }, [](R x) { return 1.5L * std::sqrt(x); }, 0.1,
       9, false, 1.5},
      {"pow -3.25", unary<"pow">, [](R x) { return std::pow(x, -3.25L); },
       [](R x) { return -3.25L * std::pow(x, -4.25L); }, 0.1, 9, false, -3.25},
      {"clamp", unary<"clamp">, [](R x) { return std::min(std::max(x, -2.0L), 3.0L); },
       [](R x) { return x >= -2 && x <= 3; }, -9, 9, false, -2, 3},
      {"sigmoid", unary<"sigmoid">, [](R x) { return sigmoid(x); }, [](R y) { return y * (1 - y); }, -80, 80,
       true},
      {"tanh", unary<"tanh">, [](R x) { return std::tanh(x); }, [](R y) { return 1 - y * y; }, -20, 20, true,
       0, 0, true},
      {"relu", unary<"relu">, [](R x) { return std::max(x, 0.0L); }, [](R y) { return y > 0; }, -9, 9, true},
      {"relu_squared", unary<"relu_squared">, [](R x) { return x > 0 ? x * x : 0; },
       [](R x) { return x > 0 ? 2 * x : 0; }, -9, 9},
      {"leaky_relu", unary<"leaky_relu">, [](R x) { return x > 0 ? x : x / 8; },
       [](R x) { return x > 0 ? 1 : 0.125L; }, -9, 9, false, 0.125},
      {"elu", unary<"elu">, [](R x) { return x > 0 ? x : std::expm1(x) / 2; },
       [](R x) { return x > 0 ? 1 : std::exp(x) / 2; }, -80, 9, false, 0.5},
      {"gelu", unary<"gelu">, [](R x) { return x * normal_cdf(x); },
       [](R x) { return normal_cdf(x) + x * std::exp(-x * x / 2) / std::sqrt(2 * kPi); }, -12, 12, false, 0, 0, true},
      {"gelu_tanh", unary<"gelu_tanh">, [](R x) { return x * sigmoid(gelu_angle(x)); },
       [](R x) {
         const R s = sigmoid(gelu_angle(x)), slope = 2 * std::sqrt(2 / kPi) * (1 + 3 * 0.044715L * x * x);
         return s + x * s * (1 - s) * slope;
       },
       -12, 12, false, 0, 0, true},
      {"silu", unary<"silu">, [](R x) { return x * sigmoid(x); },
       [](R x) { return sigmoid(x) * (1 + x * (1 - sigmoid(x))); }, -80, 80, false, 0, 0, true},
      {"softsign", unary<"softsign">, [](R x) { return x / (1 + std::fabs(x)); },
       [](R x) { return 1 / ((1 + std::fabs(x)) * (1 + std::fabs(x))); }, -9, 9},
      {"softplus", unary<"softplus">, [](R x) { return std::log1p(std::exp(2 * x)) / 2; },
       [](R x) { return sigmoid(2 * x); }, -40, 40, false, 2},
  };
  return cases;
}

template <class T>
std::vector<T> numbers(double low, double high, int n, int seed = 0) {
  std::vector<T> x;
  for (int i = 0; i < n; ++i) {
    const double u = std::fmod(0.6180339887498949 * (i + 1 + 31 * seed), 1.0);
    x.push_back(static_cast<T>(low + (high - low) * u));
  }
  return x;
}

template <class T>
constexpr int type = sizeof(T) == 4 ? kFloat32 : kFloat64;

// Runs a kernel on n elements. Elements after them must not change.
template <class T>
std::vector<T> run(ElementwiseKernel k, const std::vector<const T*>& in, const std::vector<unsigned char>& step, int n,
                   ElementwiseOptions options, T before = 0) {
  std::vector<T> y(n, before);
  std::vector<const void*> p(in.begin(), in.end());
  k(y.data(), p.data(), step.data(), n, options);
  std::vector<T> longer(n + 3, T(-77));
  std::fill_n(longer.begin(), n, before);
  k(longer.data(), p.data(), step.data(), n, options);
  for (int i = 0; i < n + 3; ++i)
    if (!(longer[i] == (i < n ? y[i] : T(-77))) && !(i < n && std::isnan(y[i]))) y[0] = T(1e30f);
  return y;
}

const std::vector<int>& widths() {
  static const std::vector<int> w = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 20001};
  return w;
}

template <class T>
void check_unary() {
  for (const UnaryCase& c : unary_cases()) {
    CAPTURE(c.name);
    double worst = 0, worst_slope = 0;
    for (const int n : widths()) {
      const std::vector<T> x = numbers<T>(c.low, c.high, n), dy = numbers<T>(-2, 2, n, 5);
      const ElementwiseKernel f = c.kernel().forward[type<T>], b = c.kernel().backward[type<T>];
      const std::vector<T> y = run<T>(f, {x.data()}, {1}, n, {c.a, c.b});
      const std::vector<T>& kept = c.keeps_output ? y : x;
      const std::vector<T> dx = run<T>(b, {kept.data(), dy.data()}, {1, 1}, n, {c.a, c.b});
      const std::vector<T> more = run<T>(b, {kept.data(), dy.data()}, {1, 1}, n, {c.a, c.b, true}, T(8));
      const std::vector<T> one = run<T>(b, {kept.data(), dy.data()}, {1, 0}, n, {c.a, c.b});
      int wrong = 0;
      for (int i = 0; i < n; ++i) {
        const Real floor = c.absolute ? std::fabs(static_cast<Real>(x[i])) : 0;
        worst = std::max(worst, error_of<T>(y[i], c.f(x[i]), floor));
        const Real slope = c.slope(kept[i]), scale = std::fabs(static_cast<Real>(dy[i]));
        worst_slope =
            std::max(worst_slope, error_of<T>(dx[i], slope * dy[i], c.absolute || c.keeps_output ? scale : 0));
        worst_slope =
            std::max(worst_slope, error_of<T>(one[i], slope * dy[0], std::fabs(static_cast<Real>(dy[0]))) / 2);
        wrong += more[i] != T(8) + dx[i];
      }
      CHECK(wrong == 0);
    }
    CHECK(worst < c.max_ulps);
    CHECK(worst_slope < c.max_slope);
  }
}

struct BinaryCase {
  std::string name;
  const BinaryKernel& (*kernel)();
  std::function<Real(Real, Real)> f, slope_a, slope_b;
  double low, high;
};

Real share(bool wins, bool tie) { return tie ? 0.5L : wins; }

const std::vector<BinaryCase>& binary_cases() {
  using R = Real;
  static const std::vector<BinaryCase> cases = {
      {"add", binary<"add">, [](R a, R b) { return a + b; }, [](R, R) { return 1; }, [](R, R) { return 1; }, -4, 4},
      {"sub", binary<"sub">, [](R a, R b) { return a - b; }, [](R, R) { return 1; }, [](R, R) { return -1; }, -4, 4},
      {"mul", binary<"mul">, [](R a, R b) { return a * b; }, [](R, R b) { return b; }, [](R a, R) { return a; }, -4, 4},
      {"div", binary<"div">, [](R a, R b) { return a / b; }, [](R, R b) { return 1 / b; },
       [](R a, R b) { return -a / (b * b); }, 0.1, 4},
      {"maximum", binary<"maximum">, [](R a, R b) { return std::max(a, b); },
       [](R a, R b) { return share(a > b, a == b); }, [](R a, R b) { return share(b > a, a == b); }, -4, 4},
      {"minimum", binary<"minimum">, [](R a, R b) { return std::min(a, b); },
       [](R a, R b) { return share(a < b, a == b); }, [](R a, R b) { return share(b < a, a == b); }, -4, 4},
      {"pow", binary<"pow">, [](R a, R b) { return std::pow(a, b); }, [](R a, R b) { return b * std::pow(a, b - 1); },
       [](R a, R b) { return std::pow(a, b) * std::log(a); }, 0.1, 4},
  };
  return cases;
}

unsigned char bit(int x, int i) { return static_cast<unsigned char>(x >> i & 1); }

template <class T>
void check_binary() {
  for (const BinaryCase& c : binary_cases()) {
    CAPTURE(c.name);
    double worst = 0, worst_slope = 0;
    for (const int n : widths())
      for (const int steps : {7, 6, 5, 3}) {  // bits: a, b, dy
        const std::vector<T> a = numbers<T>(c.low, c.high, n), b = numbers<T>(c.low, c.high, n, 3),
                             dy = numbers<T>(-2, 2, n, 5);
        const std::vector<unsigned char> step = {bit(steps, 0), bit(steps, 1), bit(steps, 2)};
        const BinaryKernel& k = c.kernel();
        const std::vector<T> y = run<T>(k.forward[type<T>], {a.data(), b.data()}, step, n, {});
        const std::vector<T> plus = run<T>(k.forward[type<T>], {a.data(), b.data()}, step, n, {0, 0, true}, T(8));
        const std::vector<T> da = run<T>(k.da.kernel[type<T>], {a.data(), b.data(), dy.data()}, step, n, {});
        const std::vector<T> db = run<T>(k.db.kernel[type<T>], {a.data(), b.data(), dy.data()}, step, n, {});
        const std::vector<T> more =
            run<T>(k.db.kernel[type<T>], {a.data(), b.data(), dy.data()}, step, n, {0, 0, true}, T(8));
        int wrong = 0;
        for (int i = 0; i < n; ++i) {
          const Real p = a[i * step[0]], q = b[i * step[1]], d = dy[i * step[2]];
          worst = std::max(worst, error_of<T>(y[i], c.f(p, q), 0));
          worst_slope = std::max(worst_slope, error_of<T>(da[i], c.slope_a(p, q) * d, 0));
          worst_slope = std::max(worst_slope, error_of<T>(db[i], c.slope_b(p, q) * d, 0));
          wrong += plus[i] != T(8) + y[i];
          wrong += more[i] != T(8) + db[i];
        }
        CHECK(wrong == 0);
      }
    CHECK(worst < 2);
    CHECK(worst_slope < 4);
  }
}

// The sign of a zero result is that of IEEE 754 and of the C library.
template <class T>
void check_zeros() {
  for (const UnaryCase& c : unary_cases()) {
    static const std::string exact = " neg abs sqrt expm1 log1p sin cos erf tanh clamp silu softsign sin near ";
    if (exact.find(" " + c.name + " ") == std::string::npos) continue;
    CAPTURE(c.name);
    for (const int n : {1, 8, 17}) {
      std::vector<T> x(n);
      for (int i = 0; i < n; ++i) x[i] = i % 3 == 0 ? T(-0.0) : T(0);
      const std::vector<T> y = run<T>(c.kernel().forward[type<T>], {x.data()}, {1}, n, {c.a, c.b});
      int wrong = 0;
      for (int i = 0; i < n; ++i) wrong += std::signbit(y[i]) != std::signbit(c.f(x[i]));
      CHECK(wrong == 0);
    }
  }
}

}  // namespace

TEST_CASE("elementwise kernels: float32 functions of one number agree with long double") {
  on_each_float_level(check_unary<float>);
}
TEST_CASE("elementwise kernels: float64 functions of one number agree with long double") {
  on_each_float_level(check_unary<double>);
}
TEST_CASE("elementwise kernels: zeros have the sign that C gives them") {
  on_each_float_level(check_zeros<float>);
  on_each_float_level(check_zeros<double>);
}
TEST_CASE("elementwise kernels: float32 functions of two numbers agree with long double") {
  on_each_float_level(check_binary<float>);
}
TEST_CASE("elementwise kernels: float64 functions of two numbers agree with long double") {
  on_each_float_level(check_binary<double>);
}

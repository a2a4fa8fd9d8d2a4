// Reductions: values, gradients, values far from zero and near the limits of the dtype, and errors.
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/reductions.hpp>
#include <heed/autograd/tape.hpp>
#include <heed/core/random.hpp>
#include <limits>

#include "tests/core/levels.hpp"
#include "tests/reference.hpp"
#include "tests/support.hpp"

using namespace heed;
using test::contains;
using test::error_of;
using test::kInf;
using test::kNaN;

namespace {

// A number as second argument would be p in PyTorch but an axis in the other reductions, so it does not compile.
template <class... Arguments>
concept NormOf = requires(Arguments... arguments) {
  norm(arguments...);
};
static_assert(NormOf<Tensor> && NormOf<Tensor, Axes> && NormOf<Tensor, Axes, NormOptions>);
static_assert(!NormOf<Tensor, int> && !NormOf<Tensor, double> && !NormOf<Tensor, double, Axes>);

// Axes and counts are integers, and flags are bool. Other types are not converted.
template <class A>
concept AxisOfAny = requires(const Tensor& x, A a) { sum(x, a); } || requires(const Tensor& x, A a) { mean(x, a); } ||
    requires(const Tensor& x, A a) { max(x, a); } || requires(const Tensor& x, A a) { min(x, a); } ||
    requires(const Tensor& x, A a) { argmax(x, a); } || requires(const Tensor& x, A a) { argmin(x, a); } ||
    requires(const Tensor& x, A a) { variance(x, a); } || requires(const Tensor& x, A a) { stddev(x, a); } ||
    requires(const Tensor& x, A a) { logsumexp(x, a); } || requires(const Tensor& x, A a) { any(x, a); } ||
    requires(const Tensor& x, A a) { all(x, a); } || requires(const Tensor& x, A a) { prod(x, a); } ||
    requires(const Tensor& x, A a) { cumsum(x, a); } || requires(const Tensor& x, A a) { top_k(x, a); } ||
    requires(const Tensor& x, A a) { top_k(x, 1, a); } || requires(const Tensor& x, A a) { sum(x, {0, a}); } ||
    requires(const Tensor& x, A a) { max(x, {a}); } || requires(const Tensor& x, A a) { norm(x, {a}); };
static_assert(!AxisOfAny<double> && !AxisOfAny<float> && !AxisOfAny<bool> && !AxisOfAny<long double>);
template <class A>
concept AxisOfAll = requires(const Tensor& x, A a) {
  sum(x, a), mean(x, a), max(x, a), min(x, a), argmax(x, a), argmin(x, a), variance(x, a), stddev(x, a);
  logsumexp(x, a), any(x, a), all(x, a), prod(x, a), cumsum(x, a), top_k(x, a), top_k(x, 1, a);
  sum(x, {0, a}), max(x, {a}), norm(x, {a}), max(x, a, true), argmax(x, a, true), top_k(x, 1, a, false);
};
static_assert(AxisOfAll<int> && AxisOfAll<Index> && AxisOfAll<short> && AxisOfAll<std::size_t>);
static_assert(requires(const Tensor& x) { maximum(x, 0), minimum(x, 1.0), max(x), sum(x, {}), sum(x, {}, true); });

const std::vector<std::vector<int>> kReducedAxes = {{}, {0}, {1}, {-1}, {0, 2}, {1, 0}, {0, 1, 2}};

double naive_sum(const std::vector<double>& x) {
  double y = 0;
  for (double v : x) y += v;
  return y;
}
double naive_variance(const std::vector<double>& x, bool unbiased) {
  long double mean = 0, y = 0;
  for (double v : x) mean += v;
  mean /= static_cast<long double>(x.size());
  for (double v : x) y += (v - mean) * (v - mean);
  return static_cast<double>(y / static_cast<long double>(x.size() - (unbiased ? 1 : 0)));
}
double naive_logsumexp(const std::vector<double>& x) {
  long double y = 0;
  for (double v : x) y += std::exp(static_cast<long double>(v));
  return static_cast<double>(std::log(y));
}
double naive_norm(const std::vector<double>& x, double p) {
  long double y = 0;
  for (double v : x)
    y = std::isinf(p) ? std::max<long double>(y, std::fabs(v))
                      : y + std::pow(static_cast<long double>(std::fabs(v)), p);
  return static_cast<double>(std::isinf(p) ? y : std::pow(y, 1 / static_cast<long double>(p)));
}
const std::vector<double> kPowers = {1, 2, kInf, 3, 0.5, 2.5};

// d/dx of sum(op(x)).
template <class F>
std::vector<double> gradient_of(F op, const Tensor& x) {
  Tape tape;
  const Tensor in = tape.watch(x);
  const Tensor y = op(in);
  tape.backward(y, Tensor::ones(y.shape(), y.dtype()));
  return tape.grad(in).template to_vector<double>();
}

double naive_mean(const std::vector<double>& x) { return naive_sum(x) / static_cast<double>(x.size()); }

}  // namespace

TEST_CASE("sum and mean over any axes") {
  Rng rng(1);
  for (const DType dtype : {DType::float32, DType::float64}) {
    const Tensor x = rng.normal({3, 4, 5}, 0, 1, dtype);
    for (const auto& axes : kReducedAxes) {
      for (const Tensor& v : {x, x.transpose(0, 2), x.slice(2, 0, 5, 2)}) {
        for (const bool keepdim : {false, true}) {
          const Tensor s = sum(v, axes, keepdim), m = mean(v, axes, keepdim);
          CHECK(test::close(s, test::reduced(v, axes, s, naive_sum), 1e-6, 1e-6));
          CHECK(test::close(m, test::reduced(v, axes, m, naive_mean), 1e-6, 1e-6));
        }
      }
    }
    CHECK(sum(x, {0, 2}).shape() == Shape{4});
    CHECK(sum(x, {0, 2}, true).shape() == Shape{1, 4, 1});
    CHECK(sum(x, 1).shape() == Shape{3, 5});
    CHECK(sum(x).shape() == Shape{});
    CHECK(sum(x).dtype() == dtype);
  }
}

TEST_CASE("sum and mean pass gradcheck") {
  Rng rng(2);
  const Tensor x = rng.normal({3, 4, 5}, 0, 1, DType::float64);
  for (const auto& axes : kReducedAxes) {
    for (const bool keepdim : {false, true}) {
      gradcheck([&](const std::vector<Tensor>& in) { return sum(in[0], axes, keepdim); }, {x});
      gradcheck([&](const std::vector<Tensor>& in) { return mean(in[0].transpose(0, 2), axes, keepdim); }, {x});
    }
  }
  gradcheck([](const std::vector<Tensor>& in) { return sum(in[0]); }, {Tensor::scalar(3, DType::float64)});
}

TEST_CASE("sums of no elements, one element and no axes") {
  CHECK(sum(Tensor::zeros({0})).item() == 0);
  CHECK(sum(Tensor::zeros({3, 0}), 1).to_vector<double>() == std::vector<double>{0, 0, 0});
  CHECK(sum(Tensor::zeros({3, 0}), 0).shape() == Shape{0});
  CHECK(std::isnan(mean(Tensor::zeros({0})).item()));
  CHECK(std::isnan(mean(Tensor::zeros({2, 0}), 1).at({1})));
  CHECK(sum(Tensor::scalar(3)).item() == 3);
  CHECK(mean(Tensor::full({1, 1}, 3), {0, 1}).item() == 3);
  const double inf = std::numeric_limits<double>::infinity();
  CHECK(sum(Tensor::from({1, inf, 2})).item() == inf);
  CHECK(std::isnan(sum(Tensor::from({inf, -inf})).item()));
}

TEST_CASE("variance, stddev, logsumexp and norm over any axes, of any strides") {
  Rng rng(3);
  for (const DType dtype : {DType::float32, DType::float64}) {
    const double tolerance = dtype == DType::float32 ? 1e-6 : 1e-14;
    const Tensor x = rng.normal({3, 4, 5}, 2, 1, dtype);
    for (const auto& axes : kReducedAxes) {
      for (const Tensor& v : {x, x.transpose(0, 2), x.slice(2, 0, 5, 2)}) {
        for (const bool flag : {false, true}) {
          const Tensor a = variance(v, axes, {.correction = flag ? 1. : 0., .keepdim = !flag}),
                       b = stddev(v, axes, {.correction = flag ? 1. : 0.});
          CHECK(test::worst(a, test::reduced(v, axes, a, [&](const auto& g) { return naive_variance(g, flag); }),
                            tolerance, 0) <= 1);
          CHECK(test::worst(
                    b, test::reduced(v, axes, b, [&](const auto& g) { return std::sqrt(naive_variance(g, flag)); }),
                    tolerance, 0) <= 1);
          const Tensor c = logsumexp(v, axes, flag);
          CHECK(test::worst(c, test::reduced(v, axes, c, naive_logsumexp), tolerance, tolerance) <= 1);
          for (const double p : kPowers) {
            const Tensor d = norm(v, axes, {p, flag});
            CHECK(test::worst(d, test::reduced(v, axes, d, [p](const auto& g) { return naive_norm(g, p); }),
                              2 * tolerance, 0) <= 1);
          }
        }
      }
    }
  }
  CHECK(variance(Tensor::from({1, 2, 3, 4})).item() == doctest::Approx(5.0 / 3));
  CHECK(norm(Tensor::from({3, 4})).item() == 5);
}

TEST_CASE("variance does not cancel far from zero, nor does logsumexp overflow") {
  const Tensor x = Tensor::from<double>({1e9, 1e9 + 1, 1e9 + 2}, {3});
  CHECK(variance(x).item() == 1);
  CHECK(logsumexp(Tensor::from({1000, 1000})).item() == doctest::Approx(1000 + std::log(2)));
  CHECK(logsumexp(Tensor::from({-1000, -1000})).item() == doctest::Approx(-1000 + std::log(2)));
}

TEST_CASE("variance and stddev are exact to float32's rounding far from zero, by rows and columns, on each level") {
  heed::test::on_each_level([] {
    Rng rng(6);
    CHECK(variance(Tensor::from({1e7, 1e7 + 1, 1e7 + 2, 1e7 + 3})).item() == doctest::Approx(5.0 / 3).epsilon(1e-7));
    for (const Index n : {2, 3, 15, 16, 17, 100, 1000, 20000}) {
      CAPTURE(n);
      for (const bool down : {false, true}) {
        Tensor x = rng.normal(down ? Shape{n, 19} : Shape{3, n}, 1e6, 1);
        const int axis = down ? 0 : 1;
        const Tensor a = variance(x, axis), b = stddev(x, axis);
        CHECK(test::worst(a, test::reduced(x, {axis}, a, [](const auto& g) { return naive_variance(g, true); }), 4e-7,
                          0) <= 1);
        CHECK(test::worst(b,
                          test::reduced(x, {axis}, b, [](const auto& g) { return std::sqrt(naive_variance(g, true)); }),
                          4e-7, 0) <= 1);
        const auto same = [&](auto op) {
          const Tensor p = Tensor::from(gradient_of(op, x), x.shape()),
                       q = Tensor::from(gradient_of(op, x.to(DType::float64)), x.shape());
          CHECK(test::worst(p, q, 2e-6, 1e-6 / static_cast<double>(n)) <= 1);
        };
        same([axis](In v) { return variance(v, axis); });
        same([axis](In v) { return stddev(v, axis); });
      }
    }
  });
}

TEST_CASE("stddev and norm are correct if squares overflow or underflow, with their gradients") {
  for (const bool wide : {false, true}) {
    const DType dtype = wide ? DType::float64 : DType::float32;
    for (const double size :
         wide ? std::vector<double>{1e-200, 1e170, 1e300} : std::vector<double>{1e-30, 1e-20, 1e20, 1e37}) {
      CAPTURE(size);
      const Tensor x = Tensor::from({1, 0, 0, -2, 0.5, 0.25}, {2, 3}).to(dtype), extreme = (x * size).to(dtype);
      const auto same = [&](auto op) {
        const Tensor y = op(extreme), plain = op(x.to(DType::float64));
        CHECK(test::worst(y.to(DType::float64) / size, plain, 1e-6, 0) <= 1);
        const Tensor p = Tensor::from(gradient_of(op, extreme), x.shape()),
                     q = Tensor::from(gradient_of(op, x.to(DType::float64)), x.shape());
        CHECK(test::worst(p, q, 2e-6, 1e-6) <= 1);
      };
      same([](In v) { return stddev(v, 1); });
      same([](In v) { return stddev(v, 0); });
      for (const double p : {2.0, 3.0, 8.0, 1.5}) same([p](In v) { return norm(v, {1}, {.p = p}); });
    }
  }
  CHECK(stddev(Tensor::from({1e20, 0, 0})).item() == doctest::Approx(1e20 / std::sqrt(3.)).epsilon(1e-6));
  CHECK(variance(Tensor::from({1e20, 0, 0})).item() == kInf);  // exceeds float32
  CHECK(norm(Tensor::from({3e38, 0})).item() == static_cast<double>(3e38f));
  CHECK(norm(Tensor::from({3e38, 3e38})).item() == kInf);
  CHECK(std::isnan(stddev(Tensor::from({kInf, 0, 0})).item()));
}

// dx = dy sign(x) (|x| / |x|_p)^(p - 1), in long double, for each row.
Tensor naive_norm_gradient(const Tensor& x, double p, double dy) {
  Tensor d = Tensor::zeros(x.shape(), DType::float64);
  for (Index r = 0; r < x.dim(0); ++r) {
    long double norm = 0;
    const auto at = [&](Index j) { return static_cast<long double>(x.at({r, j})); };
    for (Index j = 0; j < x.dim(1); ++j) norm += std::pow(std::fabs(at(j)), static_cast<long double>(p));
    norm = std::pow(norm, 1 / static_cast<long double>(p));
    for (Index j = 0; j < x.dim(1); ++j)
      if (at(j) != 0)
        d.ptr<double>()[r * x.dim(1) + j] = static_cast<double>(
            std::copysign(dy * std::pow(std::fabs(at(j)) / norm, static_cast<long double>(p - 1)), at(j)));
  }
  return d;
}

TEST_CASE("norm's gradient is right for vectors of any size, subnormal ones included, and for any dy") {
  for (const DType dtype : {DType::float32, DType::float64, DType::bfloat16}) {
    const bool wide = dtype == DType::float64;
    for (const double size : wide ? std::vector<double>{1e-318, 3e-308, 1e-160, 1e-20, 1e160, 1e307}
                                  : std::vector<double>{1e-40, 3e-39, 1e-37, 1e-25, 1e-12, 1e15, 1e20, 1e37})
      for (const double dy : {1.0, 1e-20, 1e20})
        for (const double p : {1.0, 1.5, 2.0, 3.0, 8.0}) {
          CAPTURE(size);
          CAPTURE(dy);
          CAPTURE(p);
          const Tensor x = (Tensor::from<double>({1, -0.5, 0.25, 0, 0, 0, -2, 0.75, 1.5}, {3, 3}) * size).to(dtype);
          const std::vector<double> got =
              gradient_of([&](In v) { return norm(v, {1}, {.p = p}).to(DType::float64) * dy; }, x);
          const Tensor expected = naive_norm_gradient(x.to(DType::float64), p, dy);
          const double digits = dtype == DType::bfloat16 ? 5e-3 : wide ? 1e-13 : 1e-6;
          CHECK(test::worst(Tensor::from(got, x.shape()), expected, digits, digits * 1e-3 * dy) <= 1);
        }
  }
  // For p < 1 the gradient grows without bound towards 0; here it still fits float32.
  const Tensor x = Tensor::from({1e-40, 2e-40}, {1, 2});
  const Tensor d = Tensor::from(gradient_of([](In v) { return norm(v, {1}, {.p = 0.5}); }, x), x.shape());
  CHECK(test::worst(d, naive_norm_gradient(x.to(DType::float64), 0.5, 1), 1e-5, 0) <= 1);
}

TEST_CASE("stddev's gradient is right for rows of any size, subnormal ones included, and for any dy") {
  for (const DType dtype : {DType::float32, DType::float64}) {
    const bool wide = dtype == DType::float64;
    for (const double size : wide ? std::vector<double>{1e-316, 1e-308, 1e-160, 1e160}
                                  : std::vector<double>{1e-40, 1e-38, 1e-25, 1e20, 1e37})
      for (const double dy : {1.0, 1e-20}) {
        CAPTURE(size);
        CAPTURE(dy);
        const Tensor x = (Tensor::from<double>({1, -0.5, 0.25, 2, 2, 2, -2, 0.75, 1.5}, {3, 3}) * size).to(dtype);
        const Tensor got = Tensor::from(
            gradient_of([&](In v) { return stddev(v, 1).to(DType::float64) * dy; }, x), x.shape());
        Tensor expected = Tensor::zeros({3, 3}, DType::float64);
        for (Index r = 0; r < 3; ++r) {
          long double mean = 0, squares = 0;
          for (Index j = 0; j < 3; ++j) mean += static_cast<long double>(x.at({r, j})) / 3;
          for (Index j = 0; j < 3; ++j) squares += std::pow(static_cast<long double>(x.at({r, j})) - mean, 2.0L);
          for (Index j = 0; j < 3 && r != 1; ++j)
            expected.ptr<double>()[3 * r + j] = static_cast<double>(
                dy * (static_cast<long double>(x.at({r, j})) - mean) / (2 * std::sqrt(squares / 2)));
        }
        const double digits = wide ? 1e-13 : 1e-6;
        CHECK(test::worst(got, expected, digits, digits * dy) <= 1);
      }
  }
}

TEST_CASE("variance, stddev, logsumexp and norm pass gradcheck") {
  Rng rng(4);
  const Tensor x = rng.normal({3, 4, 5}, 0.5, 1, DType::float64);
  for (const auto& axes : kReducedAxes) {
    for (const bool flag : {false, true}) {
      const auto given = [flag](const Tensor& in) { return flag ? in : in.transpose(0, 2).slice(1, 0, 4, 2); };
      gradcheck(
          [&](const std::vector<Tensor>& in) { return variance(given(in[0]), axes, {.correction = flag ? 1. : 0.}); },
          {x});
      gradcheck([&](const std::vector<Tensor>& in) { return stddev(given(in[0]), axes, {.keepdim = flag}); }, {x});
      gradcheck([&](const std::vector<Tensor>& in) { return logsumexp(given(in[0]), axes, flag); }, {x});
      for (const double p : kPowers)
        gradcheck([&](const std::vector<Tensor>& in) { return norm(given(in[0]), axes, {p, flag}); }, {x});
    }
  }
  // Long rows are computed in parts. The gradients of two uses are summed.
  const Tensor row = rng.normal({40000}, 0, 1, DType::float64);
  gradcheck(
      [&](const std::vector<Tensor>& in) {
        return norm(in[0].view({2, 20000}), {1});
      },
      {row}, {.min_samples = 20});
  gradcheck(
      [&](const std::vector<Tensor>& in) {
        return logsumexp(stddev(in[0].view({2, 20000}), 1));
      },
      {row}, {.min_samples = 20});
}

TEST_CASE("float32 derivatives of reductions agree with float64 at every width, on every instruction set") {
  heed::test::on_each_level([] {
    Rng rng(5);
    for (const Index n : {2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 65, 20000}) {
      CAPTURE(n);
      for (const bool down : {false, true}) {
        const Tensor x = rng.normal(down ? Shape{n, 19} : Shape{3, n});
        const int axis = down ? 0 : 1;
        const auto check_same = [&](auto op) {
          const Tensor a = Tensor::from(gradient_of(op, x), x.shape()),
                       b = Tensor::from(gradient_of(op, x.to(DType::float64)), x.shape());
          CHECK(test::worst(a, b, 3e-6, 3e-6) <= 1);
        };
        check_same([axis](In v) { return variance(v, axis); });
        check_same([axis](In v) { return stddev(v, axis); });
        check_same([axis](In v) { return logsumexp(v, axis); });
        check_same([axis](In v) { return norm(v, {axis}, {.p = 1}); });
        check_same([axis](In v) { return norm(v, {axis}); });
        check_same([axis](In v) { return mean(v, axis); });
      }
    }
  });
}

TEST_CASE("variance, logsumexp and norm of few, zero and non-finite values") {
  CHECK(std::isnan(variance(Tensor::scalar(1)).item()));
  CHECK(variance(Tensor::scalar(1), {}, {.correction = 0}).item() == 0);
  CHECK(std::isnan(variance(Tensor::zeros({0})).item()));
  CHECK(std::isnan(stddev(Tensor::zeros({2, 0}), 1, {.correction = 0}).at({1})));
  CHECK(gradient_of([](In v) { return stddev(v); }, Tensor::ones({3})) == std::vector<double>{0, 0, 0});

  CHECK(logsumexp(Tensor::zeros({0})).item() == -kInf);
  CHECK(logsumexp(Tensor::from({-kInf, -kInf})).item() == -kInf);
  CHECK(logsumexp(Tensor::from({1, kInf})).item() == kInf);
  CHECK(std::isnan(logsumexp(Tensor::from({1, kNaN})).item()));
  CHECK(gradient_of([](In v) { return logsumexp(v); }, Tensor::from({-kInf, -kInf})) == std::vector<double>{0, 0});
  CHECK(gradient_of([](In v) { return logsumexp(v); }, Tensor::from({-kInf, 3})) == std::vector<double>{0, 1});

  for (const double p : kPowers) {
    CAPTURE(p);
    CHECK(norm(Tensor::zeros({0}), {}, {p}).item() == 0);
    CHECK(norm(Tensor::scalar(-3), {}, {p}).item() == doctest::Approx(3));
    CHECK(norm(Tensor::from({1, -kInf}), {}, {p}).item() == kInf);
    CHECK(std::isnan(norm(Tensor::from({1, kNaN, 2}), {}, {p}).item()));
    CHECK(gradient_of([p](In v) { return norm(v, {}, {p}); }, Tensor::zeros({2})) == std::vector<double>{0, 0});
  }
  CHECK(gradient_of([](In v) { return norm(v, {}, {.p = std::numeric_limits<double>::infinity()}); },
                    Tensor::from({2, -3, 3})) == std::vector<double>{0, -0.5, 0.5});
  CHECK(gradient_of([](In v) { return norm(v, {}, {.p = 1}); }, Tensor::from({2, -3, 0})) ==
        std::vector<double>{1, -1, 0});
}

TEST_CASE("reductions: errors name the wrong argument") {
  CHECK(contains(error_of([] { sum(Tensor::scalar(1), 1); }), "sum: axis is 1 but x is [1] float32"));
  CHECK(contains(error_of([] {
                   sum(Tensor::scalar(1), {0, -1});
                 }),
                 "sum: axis -1 of x, which is [] float32, is given twice"));
  CHECK(
      contains(error_of([] { variance(Tensor::zeros({2}), {}, {.correction = kNaN}); }), "correction is nan; it must"));
  CHECK(contains(error_of([] { sum(Tensor::zeros({2}), 1); }),
                 "sum: axis is 1 but x is [2] float32; it must be in [-1, 1)"));
  CHECK(contains(error_of([] {
                   mean(Tensor::zeros({2, 2}), {0, 0});
                 }),
                 "mean: axis 0 of x, which is [2, 2] float32, is given twice"));
  CHECK(contains(error_of([] { variance(Tensor::zeros({2}, DType::bool8)); }),
                 "variance: x is [2] bool8; it must be floating"));
  CHECK(contains(error_of([] { stddev(Tensor::zeros({2}), -2); }), "stddev: axis is -2"));
  CHECK(contains(error_of([] { logsumexp(Tensor::zeros({2}, DType::int32)); }), "logsumexp: x is [2] int32"));
  CHECK(contains(error_of([] { norm(Tensor::zeros({2}, DType::int32)); }), "norm: x is [2] int32"));
  CHECK(contains(error_of([] { norm(Tensor::zeros({2}), {}, {.p = 0}); }), "norm: p is 0; it must be greater than 0"));
  CHECK(contains(error_of([] { norm(Tensor::zeros({2}), {}, {.p = kNaN}); }), "norm: p is nan"));
  CHECK(contains(error_of([] { mean(Tensor::zeros({2}), 1); }), "reductions_test.cpp:"));
}

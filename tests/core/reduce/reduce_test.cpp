// Reductions against float64 loops: every kind, axes, strides, NaN, and bits that do not depend on threads.
#include <chrono>
#include <heed/core/parallel.hpp>
#include <heed/core/random.hpp>
#include <heed/core/reduce/reduce.hpp>

#include "tests/core/levels.hpp"
#include "tests/reference.hpp"
#include "tests/support.hpp"

using namespace heed;
using heed::test::on_each_float_level;
using test::kNaN;

namespace {

double value_of(kernels::Reduction op, const std::vector<double>& x, double c) {
  long double y = op == kernels::Reduction::max ? -1e300 : op == kernels::Reduction::min ? 1e300 : 0;
  for (double v : x) {
    switch (op) {
      case kernels::Reduction::sum: y += v; break;
      case kernels::Reduction::abs: y += std::fabs(v); break;
      case kernels::Reduction::square: y += static_cast<long double>(v) * v; break;
      case kernels::Reduction::difference: y += static_cast<long double>(v) - c; break;
      case kernels::Reduction::equal: y += v == c; break;
      case kernels::Reduction::deviation: y += static_cast<long double>(v - c) * (v - c); break;
      case kernels::Reduction::exp: y += std::exp(static_cast<long double>(v) - c); break;
      case kernels::Reduction::max: y = std::max<long double>(y, v); break;
      case kernels::Reduction::min: y = std::min<long double>(y, v); break;
      case kernels::Reduction::max_abs: y = std::max<long double>(y, std::fabs(v)); break;
    }
  }
  return static_cast<double>(y);
}

// Compares each kind of reduction with float64 loops. The tolerance is relative to the sum of absolute values.
void check_all(const Tensor& x, const std::vector<int>& axes, double tolerance) {
  const detail::Grouped g(x, Axes(axes).of("test", x));
  for (int i = 0; i <= static_cast<int>(kernels::Reduction::max_abs); ++i) {
    const auto op = static_cast<kernels::Reduction>(i);
    CAPTURE(i);
    const bool centered = op == kernels::Reduction::difference || op == kernels::Reduction::deviation ||
                          op == kernels::Reduction::exp || op == kernels::Reduction::equal;
    const Tensor center = centered ? Tensor::full(g.result_shape(), 0.25, x.dtype()) : Tensor();
    const auto result = [&] { return g.to_result(detail::reduce(op, g, center), true); };
    const Tensor any = result();
    const Tensor expected = test::reduced(x, axes, any, [&](const auto& v) { return value_of(op, v, 0.25); });
    const Tensor size = test::reduced(x, axes, any, [&](const auto& v) {
      if (op == kernels::Reduction::sum) return value_of(kernels::Reduction::abs, v, 0);
      if (op == kernels::Reduction::difference)
        return value_of(kernels::Reduction::abs, v, 0) + 0.25 * static_cast<double>(v.size());
      return std::fabs(value_of(op, v, 0.25));
    });
    const auto b = expected.to_vector<double>(), s = size.to_vector<double>();
    on_each_float_level([&] {
      double max_error = 0;
      const auto a = result().to_vector<double>();
      for (std::size_t k = 0; k < a.size(); ++k)
        max_error = std::max(max_error, std::fabs(a[k] - b[k]) / (s[k] + 1e-300));
      CHECK(max_error <= (i >= static_cast<int>(kernels::Reduction::max) ? 0 : tolerance));
    });
  }
}

}  // namespace

TEST_CASE("reductions agree with float64 loops, by rows and by columns, at every width") {
  Rng rng(1);
  for (const DType dtype : {DType::float32, DType::float64}) {
    const double tolerance = dtype == DType::float32 ? 4e-7 : 8e-16;
    for (const Index n :
         {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 63, 64, 65, 127, 129, 511, 512, 513, 1300}) {
      CAPTURE(n);
      check_all(rng.normal({3, n}, 0, 1, dtype), {1}, tolerance);
      check_all(rng.normal({n, 3}, 0, 1, dtype), {0}, tolerance);
      check_all(rng.normal({19, n}, 0, 1, dtype), {0}, tolerance);
      check_all(rng.normal({2, 9, n}, 0, 1, dtype), {1}, tolerance);
    }
  }
}

TEST_CASE("reductions of many rows, long rows and wide columns are divided into parts") {
  Rng rng(2);
  check_all(rng.normal({2, 40001}), {1}, 4e-7);
  check_all(rng.normal({70001}), {}, 4e-7);
  check_all(rng.normal({1000, 70}), {0}, 4e-7);
  check_all(rng.normal({3, 200, 1100}), {1}, 4e-7);
  check_all(rng.normal({5003, 7}), {0}, 4e-7);  // narrow columns
  check_all(rng.normal({128, 32}), {0}, 4e-7);
  check_all(rng.normal({1000, 5, 3}), {0, 1}, 4e-7);
}

TEST_CASE("a float32 sum of a million values is good to a few units in the last place of the sum of sizes") {
  Rng rng(21);
  on_each_float_level([&] {
    for (const bool positive : {false, true}) {
      const Tensor x = positive ? rng.uniform({1 << 20}) : rng.normal({1 << 20});
      double expected = 0, size = 0;
      for (double v : x.to_vector<double>()) expected += v, size += std::fabs(v);
      for (const Shape& shape : {Shape{1 << 20}, Shape{1 << 10, 1 << 10}}) {
        const Tensor y = detail::sum_axes(detail::sum_axes(x.view(shape), 1), 3u >> (2 - shape.rank()));
        CHECK(std::fabs(y.item() - expected) <= 3 * 0x1p-24 * size);
      }
    }
  });
}

TEST_CASE("reductions over any axes, of any strides") {
  Rng rng(3);
  const Tensor x = rng.normal({3, 4, 1, 5, 6}, 0, 1, DType::float64);
  for (const std::vector<int>& axes : std::vector<std::vector<int>>{{},
                                                                    {0},
                                                                    {1},
                                                                    {2},
                                                                    {-1},
                                                                    {0, 1},
                                                                    {1, 3},
                                                                    {0, 3},
                                                                    {0, 4},
                                                                    {0, 1, 4},
                                                                    {1, 4},
                                                                    {3, 4},
                                                                    {4, 1, 0},
                                                                    {0, 2, 4},
                                                                    {0, 1, 2, 3, 4}}) {
    CAPTURE(axes.size());
    check_all(x, axes, 8e-16);
    check_all(x.transpose(0, 4), axes, 8e-16);
    check_all(x.permute({3, 1, 0, 4, 2}), axes, 8e-16);
    check_all(x.slice(3, 1, 5, 2), axes, 8e-16);
    check_all(x.slice(4, 2, 5).transpose(1, 3), axes, 8e-16);
    check_all(x.slice(0, 1, 2).expand({3, 4, 2, 5, 6}), axes, 8e-16);
    const Tensor y = detail::sum_axes(x, Axes(axes).of("test", x));
    CHECK(test::worst(y,
                      test::reduced(x, axes, y, [](const auto& v) { return value_of(kernels::Reduction::sum, v, 0); }),
                      0, 1e-14) <= 1);
  }
}

TEST_CASE("sum_to undoes broadcasting") {
  Rng rng(4);
  const Tensor x = rng.normal({2, 3, 4, 5}, 0, 1, DType::float64);
  for (const Shape& shape : {Shape{5}, Shape{1, 5}, Shape{4, 1}, Shape{3, 1, 5}, Shape{2, 1, 4, 1}, Shape{1, 3, 1, 5},
                             Shape{}, Shape{1}, Shape{2, 3, 4, 5}}) {
    CAPTURE(to_string(shape));
    for (const Tensor& from : {x, rng.normal({5, 3, 4, 2}, 0, 1, DType::float64).transpose(0, 3)}) {
      const Tensor y = detail::sum_to(from, shape);
      CHECK(y.shape() == shape);
      // Naive: adds every element to the place from which broadcasting would read it.
      Tensor expected = Tensor::zeros(shape, DType::float64);
      const auto values = from.to_vector<double>();
      const Strides strides = expected.expand(from.shape()).strides();
      for (std::size_t i = 0; i < values.size(); ++i) {
        Index rest = static_cast<Index>(i), at = 0;
        for (int a = 3; a >= 0; --a) {
          at += rest % from.shape()[a] * strides[a];
          rest /= from.shape()[a];
        }
        expected.ptr<double>()[at] += values[i];
      }
      CHECK(test::close(y, expected, 0, 1e-13));
    }
  }
  CHECK(detail::sum_to(Tensor::zeros({0, 3}), {3}).to_vector<double>() == std::vector<double>{0, 0, 0});
  CHECK(detail::sum_to(Tensor::ones({1, 1, 3}), {3}).to_vector<double>() == std::vector<double>{1, 1, 1});
}

TEST_CASE("max, min and sum of a row with NaN are NaN, in any lane and part") {
  on_each_float_level([] {
    for (const Index n : {1, 3, 16, 17, 40, 200, 20000}) {
      for (const Index at : {Index{0}, n / 3, n / 2, n - 1}) {
        for (const bool down : {false, true}) {
          const Tensor values = Tensor::arange(n, DType::float32);
          values.ptr<float>()[at] = static_cast<float>(kNaN);
          const Tensor x = down ? values.view({n, 1}).expand({n, 3}).dense() : values.view({1, n});
          for (const kernels::Reduction op : {kernels::Reduction::max, kernels::Reduction::min,
                                              kernels::Reduction::max_abs, kernels::Reduction::sum}) {
            const detail::Grouped g(x, down ? 1u : 2u);
            const Tensor y = detail::reduce(op, g);
            CHECK(std::isnan(y.to_vector<double>()[0]));
            if (op == kernels::Reduction::max)
              CHECK(detail::find(g, y).to_vector<double>()[0] == static_cast<double>(at));
          }
        }
      }
    }
  });
}

TEST_CASE("reductions have the same bits at any number of threads") {
  Rng rng(5);
  const std::vector<Tensor> inputs = {rng.normal({300000}), rng.normal({700, 600}), rng.normal({40000, 5}),
                                      rng.normal({6, 300, 70}), rng.normal({1 << 21})};
  std::vector<Tensor> first;
  for (const int n : {1, 2, 3, 8}) {
    set_threads(n);
    threads_seen();
    std::vector<Tensor> got;
    for (const Tensor& x : inputs)
      for (unsigned axes = 1; axes < 1u << x.rank(); ++axes)
        for (const kernels::Reduction op :
             {kernels::Reduction::sum, kernels::Reduction::square, kernels::Reduction::max})
          got.push_back(detail::reduce(op, detail::Grouped(x, axes)));
    if (n == 2) {
      int seen = threads_seen();
      // On a busy machine the second thread may start late.
      const auto start = std::chrono::steady_clock::now();
      while (seen < 2 && std::chrono::steady_clock::now() - start < std::chrono::seconds(20)) {
        detail::reduce(kernels::Reduction::exp, detail::Grouped(inputs[4], 1));
        seen = std::max(seen, threads_seen());
      }
      CHECK(seen >= 2);
    }
    if (first.empty()) first = got;
    bool same = true;
    for (std::size_t i = 0; i < got.size(); ++i) same = same && test::same_bits(got[i], first[i]);
    CHECK(same);
  }
  set_threads(0);
}

TEST_CASE("axes are checked") {
  const Tensor x = Tensor::zeros({2, 3});
  CHECK(Axes().of("sum", x) == 3u);
  CHECK(Axes(-1).of("sum", x) == 2u);
  CHECK(Axes({1, -2}).of("sum", x) == 3u);
  CHECK(test::contains(test::error_of([&] { Axes(2).of("sum", x); }),
                       "sum: axis is 2 but x is [2, 3] float32; it must be in [-2, 2)"));
  CHECK(test::contains(test::error_of([&] {
                         Axes({0, -2}).of("sum", x);
                       }),
                       "sum: axis -2 of x, which is [2, 3] float32, is given twice"));
  CHECK(test::contains(test::error_of([&] { Axes({0, 0, 0, 0, 0, 0, 0, 0, 0}); }), "axes: more than 8 axes"));
}

#include <heed/autograd/gradcheck.hpp>
#include <heed/autograd/reductions.hpp>
#include <heed/core/random.hpp>

#include "tests/reference.hpp"
#include "tests/support.hpp"

using namespace heed;
using test::contains;
using test::error_of;

namespace {

const std::vector<std::vector<int>> kAxes = {{}, {0}, {1}, {-1}, {0, 2}, {1, 0}, {0, 1, 2}};

double naive_sum(const std::vector<double>& x) {
  double y = 0;
  for (double v : x) y += v;
  return y;
}
double naive_mean(const std::vector<double>& x) { return naive_sum(x) / static_cast<double>(x.size()); }

}  // namespace

TEST_CASE("sum and mean over any axes") {
  Rng rng(1);
  for (const DType dtype : {DType::float32, DType::float64}) {
    const Tensor x = rng.normal({3, 4, 5}, 0, 1, dtype);
    for (const auto& axes : kAxes) {
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
  for (const auto& axes : kAxes) {
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

TEST_CASE("reductions name what is wrong") {
  CHECK(contains(error_of([] { sum(Tensor::zeros({2}, DType::int32)); }),
                 "sum: x is [2] int32; it must be float32 or float64"));
  CHECK(contains(error_of([] { sum(Tensor::zeros({2}), 1); }),
                 "sum: axis is 1 but x is [2] float32; it must lie in [-1, 1)"));
  CHECK(contains(error_of([] {
                   mean(Tensor::zeros({2, 2}), {0, 0});
                 }),
                 "mean: axis 0 of x, which is [2, 2] float32, is named twice"));
  CHECK(contains(error_of([] { mean(Tensor::zeros({2}), 1); }), "reductions_test.cpp:"));
}

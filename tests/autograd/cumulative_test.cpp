// cumsum and prod: values, gradients, precision and errors.
#include <heed/autograd/reductions.hpp>
#include <heed/autograd/tape.hpp>
#include <heed/core/parallel.hpp>
#include <heed/core/random.hpp>

#include "tests/reference.hpp"
#include "tests/support.hpp"

using namespace heed;
using test::contains;
using test::error_of;

namespace {

std::vector<double> naive_cumsum(const std::vector<double>& x) {
  std::vector<double> y;
  double sum = 0;
  for (double v : x) y.push_back(sum += v);
  return y;
}

double naive_prod(const std::vector<double>& x) {
  double y = 1;
  for (double v : x) y *= v;
  return y;
}

const std::vector<std::vector<int>> kCumulativeAxes = {{}, {0}, {1}, {-1}, {0, 2}, {1, 0}, {0, 1, 2}};

}  // namespace

TEST_CASE("cumsum along any axis") {
  Rng rng(1);
  for (const DType dtype : {DType::float32, DType::float64}) {
    const double tolerance = dtype == DType::float32 ? 1e-7 : 0;
    for (const Shape& shape :
         {Shape{7}, Shape{3, 200}, Shape{200, 70}, Shape{2, 3, 130}, Shape{3, 1, 64}, Shape{2, 100, 65}}) {
      const Tensor x = rng.normal(shape, 0, 1, dtype);
      for (int axis = -shape.rank(); axis < shape.rank(); ++axis) {
        CHECK(test::worst(cumsum(x, axis), test::along(x, axis, naive_cumsum), tolerance, 0) <= 1);
        CHECK(test::worst(cumsum(x.transpose(0, -1), axis), test::along(x.transpose(0, -1), axis, naive_cumsum),
                          tolerance, 0) <= 1);
      }
    }
  }
  CHECK(cumsum(Tensor::zeros({2, 0}), 1).shape() == Shape{2, 0});
  CHECK(cumsum(Tensor::zeros({2, 0}), 0).shape() == Shape{2, 0});
  CHECK(std::isnan(cumsum(Tensor::from({1, std::nan(""), 1}), 0).at({2})));
}

TEST_CASE("a float32 cumsum of a million values does not drift") {
  const Tensor y = cumsum(Tensor::full({1 << 20}, 0.1), 0);
  CHECK(y.at({(1 << 20) - 1}) == doctest::Approx(static_cast<double>(0.1f) * (1 << 20)).epsilon(1e-7));
}

TEST_CASE("prod over any axes") {
  Rng rng(2);
  for (const DType dtype : {DType::float32, DType::float64}) {
    const Tensor x = rng.normal({3, 4, 5}, 1, 0.5, dtype);
    for (const auto& axes : kCumulativeAxes) {
      for (const Tensor& v : {x, x.transpose(0, 2), x.slice(2, 0, 5, 2)}) {
        const Tensor y = prod(v, axes, true);
        CHECK(test::worst(y, test::reduced(v, axes, y, naive_prod), dtype == DType::float32 ? 1e-7 : 1e-14, 0) <= 1);
      }
    }
  }
  CHECK(prod(Tensor::zeros({0})).item() == 1);
  CHECK(prod(Tensor::zeros({2, 0}), 1).to_vector<double>() == std::vector<double>{1, 1});
  CHECK(prod(Tensor::scalar(3)).item() == 3);
}

TEST_CASE("cumsum and prod pass gradcheck, with zeros in the product") {
  Rng rng(3);
  const Tensor x = rng.normal({3, 4, 5}, 0, 1, DType::float64);
  for (const int axis : {0, 1, -1}) {
    gradcheck([axis](const std::vector<Tensor>& in) { return cumsum(in[0], axis); }, {x});
    gradcheck([axis](const std::vector<Tensor>& in) { return cumsum(cumsum(in[0].transpose(0, 2), axis), 0); }, {x});
  }
  const Tensor zeros = x.clone();
  for (const Index i : {3, 21, 22, 40}) zeros.ptr<double>()[i] = 0;
  for (const auto& axes : kCumulativeAxes) {
    gradcheck([&](const std::vector<Tensor>& in) { return prod(in[0], axes); }, {x});
    gradcheck([&](const std::vector<Tensor>& in) { return prod(in[0].transpose(0, 1), axes, true); }, {zeros});
  }
}

TEST_CASE("cumsum has the same bits at any number of threads") {
  Rng rng(4);
  const Tensor x = rng.normal({300, 500});
  std::vector<Tensor> first;
  for (const int n : {1, 2, 3, 8}) {
    set_threads(n);
    const std::vector<Tensor> got = {cumsum(x, 0), cumsum(x, 1), prod(x, 0), prod(x, 1)};
    if (first.empty()) first = got;
    for (std::size_t i = 0; i < got.size(); ++i) CHECK(test::same_bits(got[i], first[i]));
  }
  set_threads(0);
}

TEST_CASE("cumsum and prod: errors name the wrong argument") {
  CHECK(contains(error_of([] { cumsum(Tensor::zeros({}), 1); }), "cumsum: axis is 1 but x is [1] float32"));
  CHECK(contains(error_of([] { cumsum(Tensor::zeros({2}), 1); }), "cumsum: axis is 1 but x is [2] float32"));
  CHECK(
      contains(error_of([] { prod(Tensor::zeros({2}, DType::int32)); }), "prod: x is [2] int32; it must be floating"));
  CHECK(contains(error_of([] { prod(Tensor::zeros({2}), 3); }), "prod: axis is 3"));
}

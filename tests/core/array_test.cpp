// Conversions between tensors and xtensor arrays.
#include <cmath>
#include <heed/core/array.hpp>
#if __has_include(<xtensor/core/xmath.hpp>)
#include <xtensor/core/xmath.hpp>
#include <xtensor/views/xview.hpp>
#else
#include <xtensor/xmath.hpp>
#include <xtensor/xview.hpp>
#endif

#include "tests/support.hpp"

using namespace heed;
using test::contains;
using test::error_of;

TEST_CASE("array: an array of a tensor shares its memory") {
  Tensor x = Tensor::from({1, 2, 3, 4, 5, 6}, {2, 3});
  const std::uint64_t version = x.version();
  x.array<float>() = xt::sqrt(x.array<float>()) * 2;
  CHECK(x.version() > version);
  CHECK(x.at({1, 0}) == doctest::Approx(4));
  const Tensor& constant = x;
  const xt::xarray<float> sums = xt::sum(constant.array<float>(), {1}, xt::evaluation_strategy::immediate);
  CHECK(sums(0) == doctest::Approx(2 * (1 + std::sqrt(2.0) + std::sqrt(3.0))));
  CHECK(
      contains(error_of([&] { x.array<double>(); }), "x is [2, 3] float32 but data<T>() was called with T of float64"));
  CHECK(contains(error_of([&] { x.t().array<float>(); }), "requires a contiguous tensor"));
}

TEST_CASE("array: a tensor of an expression") {
  const Tensor y(xt::linspace<double>(0, 1, 5) + 1);
  CHECK(y.dtype() == DType::float64);
  CHECK(y.to_vector<double>() == std::vector<double>{1, 1.25, 1.5, 1.75, 2});
  const xt::xarray<int> a = {{1, 2, 3}, {4, 5, 6}};
  CHECK(Tensor(xt::transpose(a)).shape() == Shape{3, 2});
  CHECK(Tensor(xt::transpose(a)).at({2, 0}) == 3);
  CHECK(Tensor(xt::view(a, 1, xt::all())).to_vector<int>() == std::vector<int>{4, 5, 6});
  CHECK(Tensor(a > 3).dtype() == DType::bool8);
}

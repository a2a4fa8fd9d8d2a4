// Features that are products of two elements: their dot product, and their derivative against plain loops.
#include <doctest/doctest.h>

#include <cmath>
#include <heed/core/kernels/linear_attention/products_of_two.hpp>
#include <vector>

#include "tests/core/levels.hpp"

using heed::kernels::products_of_two_table, heed::kernels::products_of_width;
using Numbers = std::vector<double>;

namespace {

Numbers numbers(std::int64_t n, double step) {
  Numbers x;
  for (std::int64_t i = 0; i < n; ++i) x.push_back(std::fmod(step * static_cast<double>(i + 1), 1.0) - 0.45);
  return x;
}
double at(const Numbers& x, std::int64_t i) { return x[static_cast<std::size_t>(i)]; }
Numbers zeros(std::int64_t n) { return Numbers(static_cast<std::size_t>(n)); }

// The gradient of rows x of `width`, for the gradient d + factor shared^T of their features.
Numbers plain_backward(const Numbers& x, std::int64_t rows, std::int64_t width, const Numbers& d, const Numbers& factor,
                       const Numbers& shared) {
  Numbers dx = zeros(rows * width);
  const std::int64_t features = products_of_width(width);
  for (std::int64_t r = 0; r < rows; ++r) {
    std::int64_t f = 0;
    for (std::int64_t a = 0; a < width; ++a)
      for (std::int64_t b = a; b < width; ++b, ++f) {
        const double g = at(d, r * features + f) + (factor.empty() ? 1 : at(factor, r)) * at(shared, f);
        const double scale = a == b ? 1 : std::sqrt(2.0);
        dx[static_cast<std::size_t>(r * width + a)] += g * scale * at(x, r * width + b);
        dx[static_cast<std::size_t>(r * width + b)] += g * scale * at(x, r * width + a);
      }
  }
  return dx;
}

}  // namespace

TEST_CASE("products_of_two: f(q) . f(k) is (q . k)^2, and no number beyond the features is written") {
  heed::test::on_each_float_level([] {
    for (std::int64_t width = 1; width < 40; ++width) {
      CAPTURE(width);
      const std::int64_t features = products_of_width(width);
      const Numbers x = numbers(2 * width, 0.6180339887498949);
      Numbers f(static_cast<std::size_t>(2 * features + 1), 7);
      products_of_two_table().forward(x.data(), 2, width, f.data());
      double product = 0, of_features = 0;
      for (std::int64_t i = 0; i < width; ++i) product += at(x, i) * at(x, width + i);
      for (std::int64_t i = 0; i < features; ++i) of_features += at(f, i) * at(f, features + i);
      CHECK(std::fabs(of_features - product * product) < 1e-14 * static_cast<double>(width * width));
      CHECK(f.back() == 7);
    }
  });
}

TEST_CASE("products_of_two: the derivative is added to the output") {
  heed::test::on_each_float_level([] {
    for (const std::int64_t width : {1, 2, 7, 8, 9, 16, 17, 33}) {
      CAPTURE(width);
      const std::int64_t rows = 3, features = products_of_width(width);
      const Numbers x = numbers(rows * width, 0.6180339887498949), d = numbers(rows * features, 0.41421356237309515),
                    factor = numbers(rows, 0.7320508075688772), shared = numbers(features, 0.2360679774997898);
      for (const Numbers& of_rows : {factor, Numbers()}) {
        Numbers dx(static_cast<std::size_t>(rows * width), 0.5);
        products_of_two_table().backward(x.data(), rows, width, d.data(), of_rows.empty() ? nullptr : of_rows.data(),
                                         shared.data(), dx.data());
        const Numbers expected = plain_backward(x, rows, width, d, of_rows, shared);
        for (std::int64_t i = 0; i < rows * width; ++i) CHECK(std::fabs(at(dx, i) - at(expected, i) - 0.5) < 1e-13);
      }
    }
  });
}

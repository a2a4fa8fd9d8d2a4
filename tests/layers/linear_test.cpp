// Linear maps and initial values.
#include <heed/layers/model.hpp>
#include <numeric>

#include "tests/layers/layer_cases.hpp"
#include "tests/support.hpp"

using namespace heed;
using test::contains;
using test::names_of;
using test::normal;

TEST_CASE("initialisers have the moments that they promise") {
  Rng rng(10);
  Parameter p(Tensor::empty({400, 300}));
  const auto moments = [&] {
    const std::vector<double> v = p.to_vector<double>();
    const double n = static_cast<double>(v.size()), mean = std::accumulate(v.begin(), v.end(), 0.0) / n;
    double square = 0, most = 0;
    for (double x : v) {
      square += (x - mean) * (x - mean);
      most = std::max(most, std::fabs(x));
    }
    return std::array<double, 3>{mean, std::sqrt(square / n), most};
  };
  const auto expect = [&](double deviation, double most) {
    const auto [mean, sd, largest] = moments();
    CHECK(std::fabs(mean) < 0.02 * deviation);
    CHECK(sd == doctest::Approx(deviation).epsilon(0.01));
    CHECK(largest <= most * (1 + 1e-6));
  };
  init::xavier_uniform_(p, rng);
  expect(std::sqrt(2.0 / 700), std::sqrt(6.0 / 700));
  init::xavier_normal_(p, rng, 2);
  expect(2 * std::sqrt(2.0 / 700), 1);
  init::kaiming_uniform_(p, rng);
  expect(std::sqrt(2.0 / 300), std::sqrt(6.0 / 300));
  init::kaiming_normal_(p, rng, std::sqrt(5.0));
  expect(std::sqrt(1.0 / 900), 1);
  init::normal_(p, rng, 0, 0.5);
  expect(0.5, 4);
  init::trunc_normal_(p, rng, 0, 1, -2, 2);
  expect(0.8796, 2);
  init::orthogonal_(p, rng, 1.5);
  const Tensor w = p.to(DType::float64).detach();
  const Tensor product = matmul(w.t(), w);
  for (Index i = 0; i < 300; i += 37)
    for (Index j = 0; j < 300; j += 29)
      CHECK(product.at({i, j}) == doctest::Approx(i == j ? 2.25 : 0).epsilon(1e-4).scale(1));
  // Fans count the places of a kernel: [out, in, place]. Rows are orthonormal where they are fewer.
  Parameter kernel(Tensor::empty({40, 30, 20}, DType::float64));
  init::xavier_uniform_(kernel, rng);
  CHECK(norm(kernel, {}, {.p = INFINITY}).item() == doctest::Approx(std::sqrt(6.0 / (600 + 800))).epsilon(0.01));
  init::orthogonal_(kernel, rng);
  const Tensor flat = kernel.view({40, 600}).detach(), rows = matmul(flat, flat.t());
  for (Index i = 0; i < 40; i += 3)
    for (Index j = 0; j < 40; j += 3) CHECK(rows.at({i, j}) == doctest::Approx(i == j ? 1 : 0).scale(1));
  init::constant_(kernel, 3);
  CHECK(kernel.at({39, 29, 19}) == 3);
  init::uniform_(kernel, rng, 2, 3);
  CHECK(min(kernel).item() >= 2);
  CHECK(max(kernel).item() < 3);
  CHECK(mean(kernel).item() == doctest::Approx(2.5).epsilon(0.01));
}

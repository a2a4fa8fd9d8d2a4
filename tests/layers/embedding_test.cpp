// Embedding and sinusoidal positions.
#include <heed/layers/model.hpp>
#include <numeric>

#include "tests/layers/layer_cases.hpp"
#include "tests/support.hpp"

using namespace heed;
using test::contains;
using test::names_of;
using test::normal;

TEST_CASE("an embedding's padding row begins as zeros and gets no gradient") {
  Rng rng(5);
  for (const Index padding : {2, -4}) {
    Embedding layer(6, 3, rng, padding);
    CHECK(test::same_bits(layer.weight[2], Tensor::zeros({3})));
    CHECK(layer.weight[1].at({0}) != 0);
    Tape tape;
    tape.backward(sum(layer(Tensor::from<std::int32_t>({2, 1, 2, 5}))));
    CHECK(layer.weight.grad().to_vector<double>() ==
          std::vector<double>{0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1});
  }
}

TEST_CASE("sinusoidal positions follow their formula, in float64 if requested") {
  const SinusoidalPositions layer(50, 6);
  double worst = 0;
  const Tensor wide = layer(4, 40, DType::float64);
  for (Index t = 0; t < 4; ++t)
    for (Index i = 0; i < 6; ++i) {
      const double angle = static_cast<double>(40 + t) / std::pow(10000.0, static_cast<double>(i / 2 * 2) / 6);
      worst = std::max(worst, std::fabs(wide.at({t, i}) - (i % 2 == 0 ? std::sin(angle) : std::cos(angle))));
    }
  CHECK(worst < 1e-15);
  CHECK(test::same_bits(layer(4, 40), wide.to(DType::float32)));
  const Tensor table = sinusoidal_positions(50, 6, DType::float64);
  CHECK(table.at({7, 0}) == doctest::Approx(std::sin(7.0)));
  CHECK(table.at({7, 3}) == doctest::Approx(std::cos(7 / std::pow(10000.0, 2.0 / 6))));
}

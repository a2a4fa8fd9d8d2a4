// Norms as layers: against plain loops, and the choice between them.
#include <cmath>
#include <heed/layers/norm.hpp>

#include "tests/layers/layer_cases.hpp"
#include "tests/support.hpp"

using namespace heed;

TEST_CASE("norms equal their formulas, row by row") {
  LayerNorm layer(5, 1e-3);
  layer.weight.copy_(test::normal({5}, 1, DType::float32));
  layer.bias.copy_(test::normal({5}, 2, DType::float32));
  RMSNorm rms(5, 1e-3);
  rms.weight.copy_(test::normal({5}, 3, DType::float32));
  const Tensor x = test::normal({2, 3, 5}, 4, DType::float32) * 3 + 1;
  Tensor layered = Tensor::empty({2, 3, 5}, DType::float64), scaled = Tensor::empty({2, 3, 5}, DType::float64);
  for (Index row = 0; row < 6; ++row) {
    const std::vector<double> values = x.reshape({6, 5})[row].to_vector<double>();
    double mean = 0, square = 0, variance = 0;
    for (const double v : values) mean += v / 5, square += v * v / 5;
    for (const double v : values) variance += (v - mean) * (v - mean) / 5;
    for (Index i = 0; i < 5; ++i) {
      const double v = values[static_cast<std::size_t>(i)];
      layered.ptr<double>()[row * 5 + i] =
          (v - mean) / std::sqrt(variance + 1e-3) * layer.weight.at({i}) + layer.bias.at({i});
      scaled.ptr<double>()[row * 5 + i] = v / std::sqrt(square + 1e-3) * rms.weight.at({i});
    }
  }
  CHECK(test::close(layer(x).to(DType::float64), layered));
  CHECK(test::close(rms(x).to(DType::float64), scaled));
}

TEST_CASE("Norm has the names and values of the chosen kind") {
  const Tensor x = test::normal({4, 6}, 1, DType::float32);
  Norm layer({NormKind::layer}, 6), plain({.bias = false}, 6), rms({NormKind::rms}, 6);
  CHECK(test::same_bits(layer(x), LayerNorm(6)(x)));
  CHECK(test::same_bits(rms(x), RMSNorm(6)(x)));
  CHECK(test::names_of(layer) == std::vector<std::string>{"weight", "bias"});
  CHECK(test::names_of(plain) == std::vector<std::string>{"weight"});
  CHECK(test::names_of(rms) == std::vector<std::string>{"weight"});
}

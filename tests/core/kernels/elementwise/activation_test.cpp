// Activations in bfloat16, which may use shorter formulas than float32: every bfloat16 against double.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <heed/core/dtype.hpp>
#include <heed/core/kernels/elementwise/activation.hpp>
#include <limits>
#include <vector>

#include "tests/core/levels.hpp"

using namespace heed;
using namespace heed::test;

namespace {

double value_of(std::uint16_t bits) {
  bfloat16 x;
  x.bits = bits;
  return static_cast<double>(static_cast<float>(x));
}

}  // namespace

TEST_CASE("activation: GELU in bfloat16 adds less than a sixteenth to the rounding of its values") {
  std::vector<float> x;
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    const double v = value_of(static_cast<std::uint16_t>(bits));
    if (v == 0 || (std::abs(v) > 1e-30 && std::abs(v) <= 30)) x.push_back(static_cast<float>(v));
  }
  const auto n = static_cast<std::ptrdiff_t>(x.size());
  on_each_level([&] {
    const auto& gelu = kernels::activation_table().f32.gelu;
    std::vector<std::uint16_t> kept(x.size()), h(x.size()), du(x.size()), again(x.size());
    std::vector<float> gradient(x.size(), 1.f);
    gelu.forward_bf16(x.data(), kept.data(), h.data(), n);
    gelu.backward_bf16(gradient.data(), kept.data(), du.data(), again.data(), n);
    CHECK(again == h);
    double relative = 0, far = 0, of_slope = 0, of_rounding = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double v = static_cast<double>(x[i]), cdf = std::erfc(-v / std::sqrt(2.0)) / 2, expected = v * cdf,
                   slope = cdf + v * std::exp(-v * v / 2) * 0.39894228040143267794,
                   dx = static_cast<double>(gradient[i]), error = std::abs(value_of(h[i]) - expected);
      if (v >= -3.5)
        relative = std::max(relative, v == 0 ? error : error / std::abs(expected));
      else
        far = std::max(far, error);
      of_slope = std::max(of_slope, std::abs(dx - slope));
      of_rounding = std::max(of_rounding, std::abs(value_of(du[i]) - dx) / std::max(std::abs(dx), 1e-30));
    }
    CHECK(kept.size() == x.size());
    CHECK(std::equal(kept.begin(), kept.end(), x.begin(), [](auto bits, float v) { return value_of(bits) == v; }));
    CHECK(relative < 0x1p-8 * 17 / 16);
    CHECK(far < 4e-6);
    CHECK(of_slope < 2e-4);
    CHECK(of_rounding <= 0x1p-8);
  });
}

TEST_CASE("activation: GELU in bfloat16 of infinities and NaN equals GELU in float32") {
  on_each_level([] {
    const auto& gelu = kernels::activation_table().f32.gelu;
    const float inf = std::numeric_limits<float>::infinity(), x[] = {inf, -inf, std::nanf(""), 3e38f, -3e38f};
    float y[5];
    std::uint16_t h[5];
    gelu.forward(x, nullptr, y, 5);
    gelu.forward_bf16(x, nullptr, h, 5);
    for (int i = 0; i < 5; ++i) {
      CAPTURE(x[i]);
      const double got = value_of(h[i]), expected = static_cast<double>(y[i]);
      CHECK((std::isnan(expected) ? std::isnan(got) : got == value_of(bfloat16(y[i]).bits)));
    }
  });
}

// Rounding of numbers that ranks send in bfloat16: the nearest number, and the effect on a step.
#include <algorithm>
#include <heed/heed.hpp>
#include <heed/optim/ranks/rounded.hpp>
#include <vector>

#include "tests/support.hpp"

using namespace heed;

TEST_CASE("rounded: the nearest number with 8 binary digits, ties to even") {
  // 1 + 2^-7 follows 1; ties round to the even neighbour.
  const std::vector<float> given = {1.0f, 1.00390625f, 1.01171875f, 0.1f, -0.1f, 1e-40f, 0.0f},
                           nearest = {1.0f, 1.0f, 1.015625f, 0.10009765625f, -0.10009765625f, 9.183549615799121e-41f,
                                      0.0f};  // 2^-133, the smallest
  std::vector<float> x = given;
  detail::sent_kernels().round(x.data(), static_cast<Index>(x.size()));
  CHECK(x == nearest);
  std::vector<bfloat16> bits(given.size());
  detail::round({{bits.data(), given.data(), static_cast<Index>(given.size())}});
  std::vector<float> sums(given.size(), 2.0f);
  detail::add_rounded(sums.data(), bits.data(), static_cast<Index>(sums.size()));
  for (std::size_t i = 0; i < sums.size(); ++i) CHECK(sums[i] == 2.0f + nearest[i]);
}

TEST_CASE("rounded: a rank adds to its values the same rounded differences as it sends") {
  const std::vector<float> old = {1, -3, 1000, 0};
  std::vector<float> values = {1.1f, -3.003f, 1000.0001f, 7e-5f};
  std::vector<bfloat16> added(4);
  detail::round_step(values.data(), old.data(), added.data(), 4);
  // The bfloat16 nearest to each float32 difference.
  const std::vector<float> expected = {0.10009765625f, -0.0030059814453125f, 0.0001220703125f, 7.009506225585938e-05f};
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(static_cast<float>(added[i]) == expected[i]);
    CHECK(values[i] == old[i] + expected[i]);
  }
  std::vector<float> again = {1.1f, -3.003f, 1000.0001f, 7e-5f};
  detail::round_step(again.data(), old.data(), nullptr, 4);
  CHECK(again == values);
}

TEST_CASE("rounded: both terms of a sum are rounded, at any length") {
  std::vector<float> sum(70000, 1.00390625f), more(sum.size(), 0.1f);
  detail::sent_kernels().add_both(sum.data(), more.data(), static_cast<Index>(sum.size()));
  CHECK(std::ranges::count(sum, 1.0f + 0.10009765625f) == 70000);
  std::vector<bfloat16> bits(sum.size());
  detail::round({{bits.data(), more.data(), 50000}, {bits.data() + 50000, sum.data() + 50000, 20000}});
  CHECK(static_cast<float>(bits[49999]) == 0.10009765625f);
  CHECK(static_cast<float>(bits[50000]) == 1.1015625f);
  CHECK(static_cast<float>(bits[69999]) == 1.1015625f);
}

// The elements of a row are summed in one order on every level.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "tests/core/levels.hpp"
#include "tests/kernels/simd_probe.hpp"

using namespace heed;
using heed::test::on_each_float_level;

namespace {

// Numbers of both signs and several magnitudes, so that their sum depends on the order.
template <class T>
std::vector<T> mixed_numbers(std::size_t n, double step) {
  std::vector<T> x;
  for (std::size_t i = 0; i < n; ++i) {
    const double u = std::fmod(step * static_cast<double>(i + 1), 1.0) - 0.45;
    x.push_back(static_cast<T>(u * (i % 3 == 0 ? 1 : i % 3 == 1 ? 19 : 0.03)));
  }
  return x;
}

// The documented order: element i is added to lane i mod lanes, then the lanes are added in halves.
template <class T, class Add>
T in_order(std::size_t n, const Add& add) {
  constexpr std::size_t lanes = 64 / sizeof(T);
  T sum[lanes] = {};
  for (std::size_t i = 0; i < n; ++i) sum[i % lanes] = add(sum[i % lanes], i);
  for (std::size_t half = lanes / 2; half > 0; half /= 2)
    for (std::size_t i = 0; i < half; ++i) sum[i] += sum[i + half];
  return sum[0];
}

template <class T>
bool same_sum(T a, T b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

template <class T>
void check_lane_sums(std::size_t n) {
  const std::vector<T> x = mixed_numbers<T>(n, 0.6180339887498949), y = mixed_numbers<T>(n, 0.41421356237309515);
  const T sum = in_order<T>(n, [&](T s, std::size_t i) { return s + x[i]; });
  const T dot = in_order<T>(n, [&](T s, std::size_t i) { return std::fma(x[i], y[i], s); });
  const T dot_rounded = in_order<T>(n, [&](T s, std::size_t i) { return x[i] * y[i] + s; });
  bool first = true;
  T tree = 0;
  on_each_float_level([&] {
    T got[3];
    kernels::of<T>(kernels::simd_probes()).sums(x.data(), y.data(), static_cast<std::int64_t>(n), got);
    if (std::exchange(first, false)) tree = got[1];
    const bool fused = kernels::fuses(kernels::level());
    CHECK(same_sum(got[0], sum));
    CHECK(same_sum(got[1], tree));
    CHECK((same_sum(got[2], dot) || (!fused && same_sum(got[2], dot_rounded))));
  });
  CHECK(std::fabs(static_cast<double>(tree - sum)) <= 1e-4 * (1 + static_cast<double>(n)));
}

}  // namespace

TEST_CASE("lane_sums: each element is added to its lane, and the lanes are added in halves, on every level") {
  for (std::size_t n = 0; n < 70; ++n) {
    CAPTURE(n);
    check_lane_sums<float>(n);
    check_lane_sums<double>(n);
  }
  for (const std::size_t n : {127, 255, 256, 257, 511, 512, 513, 600, 767, 1024, 1031, 1536, 2048, 4095, 5000}) {
    CAPTURE(n);
    check_lane_sums<float>(n);
    check_lane_sums<double>(n);
  }
}

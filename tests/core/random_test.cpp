// Random numbers: Philox against its published values, distributions, and that a number depends on its counter alone.
#include <algorithm>
#include <array>
#include <heed/core/parallel.hpp>
#include <heed/core/random.hpp>
#include <limits>
#include <map>

#include "tests/support.hpp"

using namespace heed;
using test::contains;
using test::error_of;
using test::same_bits;

TEST_CASE("random: Philox4x32-10 gives the known answers of Random123") {
  // kat_vectors of Random123 1.14: counter and key of zeros, of ones, of the digits of pi.
  using Words = std::array<std::uint32_t, 4>;
  CHECK(philox(0, 0, 0) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(philox(~0ull, ~0ull, ~0ull) == Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e) ==
        Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("random: a number is a function of seed, stream and position") {
  const Rng start(7, 3);
  Rng one = start, many = start;
  const Tensor u = many.uniform({3, 4}, 0, 1, DType::float64), n = many.normal({5}, 0, 1, DType::float64);
  for (Index i = 0; i < 12; ++i) CHECK(u.view({12}).at({i}) == one.uniform());
  for (Index i = 0; i < 5; ++i) CHECK(n.at({i}) == one.normal());
  CHECK(one.position() == 17);
  CHECK(many.position() == 17);
  one.set_position(12);
  CHECK(one.normal() == n.at({0}));
  CHECK(Rng(7, 3).next() != Rng(7, 4).next());
  CHECK(Rng(7, 3).next() != Rng(8, 3).next());
  CHECK(Rng(7, 3).next() == Rng(7, 3).next());
  CHECK(Rng(7).stream() == 0);
  CHECK(Rng(7).seed() == 7);
  manual_seed(9);
  CHECK(default_rng().uniform() == Rng(9).uniform());
  CHECK(Rng(1).uniform({0, 2}).shape() == Shape{0, 2});
  CHECK(Rng(1).normal({}).rank() == 0);
}

TEST_CASE("random: the same bits at any number of threads") {
  const auto draw = [] {
    Rng rng(3);
    return std::vector<Tensor>{rng.uniform({50000}), rng.normal({50000}, 0, 1, DType::float64),
                               rng.integers({5000}, -3, 9)};
  };
  set_threads(1);
  const std::vector<Tensor> first = draw();
  for (const int n : {2, 3, 8}) {
    set_threads(n);
    const std::vector<Tensor> again = draw();
    for (std::size_t i = 0; i < first.size(); ++i) CHECK(same_bits(first[i], again[i]));
  }
  set_threads(0);
}

namespace {

// The mean of f over the values.
template <class F>
double mean_of(const std::vector<double>& v, F f) {
  double sum = 0;
  for (const double x : v) sum += f(x);
  return sum / static_cast<double>(v.size());
}

// The largest distance of the empirical from the given distribution function (Kolmogorov and Smirnov), times sqrt(n):
// above 1.95 once in a thousand.
template <class F>
double distance(std::vector<double> v, F cdf) {
  std::sort(v.begin(), v.end());
  const double n = static_cast<double>(v.size());
  double most = 0;
  for (std::size_t i = 0; i < v.size(); ++i) {
    const double p = cdf(v[i]), below = static_cast<double>(i) / n;
    most = std::max({most, p - below, below + 1 / n - p});
  }
  return most * std::sqrt(n);
}

}  // namespace

TEST_CASE("random: uniform and normal numbers have their moments and distribution, neighbours are independent") {
  constexpr Index count = 200000;
  const double root = std::sqrt(static_cast<double>(count));
  Rng rng(11);
  for (const DType t : {DType::float32, DType::float64}) {
    const std::vector<double> u = rng.uniform({count}, -1, 3, t).to_vector<double>(),
                              z = rng.normal({count}, 2, 0.5, t).to_vector<double>();
    CHECK(distance(u, [](double x) { return (x + 1) / 4; }) < 1.95);
    CHECK(distance(z, [](double x) { return 0.5 * std::erfc(-(x - 2) / 0.5 / std::sqrt(2.0)); }) < 1.95);
    const auto standard = [](double x) { return (x - 2) / 0.5; };
    // Of a standard normal: the mean 0, 1, 0, 3 of its powers, whose deviations are 1, sqrt(2), sqrt(15), sqrt(96).
    CHECK(std::fabs(mean_of(z, standard)) * root < 4);
    CHECK(std::fabs(mean_of(z, [&](double x) { return std::pow(standard(x), 2); }) - 1) * root < 4 * std::sqrt(2.0));
    CHECK(std::fabs(mean_of(z, [&](double x) { return std::pow(standard(x), 3); })) * root < 4 * std::sqrt(15.0));
    CHECK(std::fabs(mean_of(z, [&](double x) { return std::pow(standard(x), 4); }) - 3) * root < 4 * std::sqrt(96.0));
    for (const std::size_t lag : {1u, 2u, 16u, 4096u}) {
      double both = 0;
      for (std::size_t i = 0; i < z.size(); ++i) both += standard(z[i]) * standard(z[(i + lag) % z.size()]);
      CHECK(std::fabs(both) / root < 4);
    }
  }
}

TEST_CASE("random: the upper limit is never reached, in any type") {
  // At this position the 53 bits are 1 - 6.5e-9, which float32 rounds to 1.
  Rng rng(1);
  rng.set_position(27392119);
  CHECK(rng.uniform({1}, 0, 1, DType::float64).item() == doctest::Approx(0.99999999352942726).epsilon(1e-15));
  rng.set_position(27392119);
  CHECK(rng.uniform({1}).item<float>() == std::nextafter(1.f, 0.f));
  rng.set_position(27392119);
  CHECK(rng.uniform({1}, -2, -1).item<float>() == std::nextafter(-1.f, -2.f));
  rng.set_position(27392119);
  CHECK(rng.uniform({1}, 5, 5).item() == 5);
  const std::vector<float> rounded = Rng(2).uniform({4000}, 0, 1, DType::bfloat16).to_vector<float>();
  CHECK(*std::max_element(rounded.begin(), rounded.end()) == 0.99609375f);
  CHECK(*std::min_element(rounded.begin(), rounded.end()) >= 0);
}

TEST_CASE("random: integers and permutations are uniform") {
  Rng rng(5);
  std::vector<double> counts(7);
  const Tensor drawn = rng.integers({70000}, -3, 4);
  CHECK(drawn.dtype() == DType::int32);
  for (const double v : drawn.to_vector<double>()) counts.at(static_cast<std::size_t>(v + 3)) += 1;
  double chi2 = 0;
  for (const double c : counts) chi2 += (c - 10000) * (c - 10000) / 10000;
  CHECK(chi2 < 22.5);  // once in a thousand, 6 degrees of freedom
  CHECK(rng.integers({4}, 7, 8).to_vector<int>() == std::vector<int>{7, 7, 7, 7});
  // Of a range of 3/4 of all 64-bit numbers, remainders would favour the lower third.
  const Index wide = Index{3} << 61;
  int low = 0;
  for (int i = 0; i < 3000; ++i) low += rng.integer(wide) < wide / 3 ? 1 : 0;
  CHECK(std::abs(low - 1000) < 4 * 26);

  std::map<std::vector<Index>, double> seen;
  for (int i = 0; i < 24000; ++i) seen[rng.permutation(4)] += 1;
  CHECK(seen.size() == 24);
  chi2 = 0;
  for (const auto& [order, c] : seen) chi2 += (c - 1000) * (c - 1000) / 1000;
  CHECK(chi2 < 49.7);  // once in a thousand, 23 degrees of freedom
  std::vector<Index> order = rng.permutation(1000);
  std::sort(order.begin(), order.end());
  for (Index i = 0; i < 1000; ++i) CHECK(order[static_cast<std::size_t>(i)] == i);
  CHECK(rng.permutation(0).empty());
  CHECK(rng.permutation(1) == std::vector<Index>{0});
}

TEST_CASE("random: wrong limits are named") {
  Rng rng;
  test::check_errors({
      {"integer: n is 0; it must be 1 or more", [&] { rng.integer(0); }},
      {"permutation: n is -1; it must be 0 or more", [&] { rng.permutation(-1); }},
      {"integers: low is 3 and high is 3; low must be less", [&] { rng.integers({2}, 3, 3); }},
      {"integers: low is 0 and high is 2147483649; both must be int32, or high one more",
       [&] { rng.integers({2}, 0, 2147483649); }},
      {"integers: low is -2147483649 and high is 0; both must be int32", [&] { rng.integers({2}, -2147483649, 0); }},
      {"uniform: low is 1 and high is 0; low must not be greater, and both finite", [&] { rng.uniform({2}, 1, 0); }},
      {"uniform: low is 0 and high is inf; low must not be greater, and both finite",
       [&] { rng.uniform({2}, 0, INFINITY); }},
      {"normal: mean is 0 and deviation is -1; the deviation must not be negative, and both finite",
       [&] { rng.normal({2}, 0, -1); }},
      {"uniform: the dtype is int32; it must be float32, float64 or bfloat16",
       [&] { rng.uniform({2}, 0, 1, DType::int32); }},
      {"normal: the dtype is bool8; it must be float32, float64 or bfloat16",
       [&] { rng.normal({2}, 0, 1, DType::bool8); }},
  });
}

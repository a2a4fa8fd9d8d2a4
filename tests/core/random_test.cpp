// Random numbers: Philox against published values, distributions, and each number as a function of its counter alone.
#include <algorithm>
#include <array>
#include <heed/core/parallel.hpp>
#include <heed/core/random.hpp>
#include <limits>
#include <map>

#include "tests/core/levels.hpp"
#include "tests/support.hpp"

using namespace heed;
using test::contains;
using test::error_of;
using test::same_bits;

TEST_CASE("random: Philox4x32-10 gives the known answers of Random123") {
  // kat_vectors of Random123 1.14: counter and key of all zeros, all ones, and the digits of pi.
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

namespace {

// FNV-1a over the bytes of a tensor.
std::uint64_t hash_of(const Tensor& x) {
  std::uint64_t hash = 0xcbf29ce484222325;
  const auto* bytes = static_cast<const unsigned char*>(x.raw());
  for (std::size_t i = 0; i < static_cast<std::size_t>(x.numel()) * size_of(x.dtype()); ++i)
    hash = (hash ^ bytes[i]) * 0x100000001b3;
  return hash;
}

// sqrt(-2 log(1 - u)) cos(x), where x = 2 pi v rounded to double and u, v are the 53-bit numbers of a block.
long double normal_of(std::uint64_t seed, std::uint64_t position, std::uint64_t stream) {
  const auto w = philox(seed, position, stream);
  const auto unit = [](std::uint32_t high, std::uint32_t low) {
    return static_cast<long double>((std::uint64_t{high} << 32 | low) >> 11) / 0x1p53L;
  };
  const double x = 6.283185307179586 * static_cast<double>(unit(w[2], w[3]));
  return std::sqrt(-2 * std::log(1 - unit(w[0], w[1]))) * std::cos(static_cast<long double>(x));
}

}  // namespace

TEST_CASE("random: the stored bits at any number of threads and on every instruction set") {
  // These hashes are part of the interface: changing them changes the initial values of every model.
  const auto draw = [] {
    Rng rng(3, 1);
    rng.set_position(0xffffff00);  // the low word of the counter overflows
    return std::vector<Tensor>{rng.uniform({30001}, -1, 3),
                               rng.uniform({3001}, -1, 3, DType::float64),
                               rng.uniform({3001}, -1, 3, DType::bfloat16),
                               rng.normal({30001}, 0, 0.02),
                               rng.normal({3001}, 1, 2, DType::float64),
                               rng.normal({3001}, 1, 2, DType::bfloat16),
                               rng.integers({5000}, -3, 9)};
  };
  // log() and cos() of glibc give the same hashes, except the fifth (float64).
  const std::vector<std::uint64_t> stored = {0x068de8e8ea9db273, 0x7adff8a4214ab395, 0x8e31c5ec3cf7b8dc,
                                             0xc8a54b3980134130, 0x69b380dea90a0804, 0x8e5ffd4f730f22e3,
                                             0xd7ba55077afe4c76};
  test::on_each_level([&] {
    for (const int n : {1, 2, 3, 8}) {
      CAPTURE(n);
      set_threads(n);
      std::vector<std::uint64_t> hashes;
      for (const Tensor& x : draw()) hashes.push_back(hash_of(x));
      CHECK(hashes == stored);
    }
  });
  set_threads(0);
}

TEST_CASE("random: single numbers are those that mpmath computes with 200 bits") {
  struct Known {
    std::uint64_t seed, position, stream;
    double uniform, normal;
    float rounded;  // the normal number in float32
  };
  constexpr Known kKnown[] = {
      {7, 0, 3, 0.5925802497947082, 0.6986583481913332, 0.6986583471298218f},
      {7, 1, 3, 0.5873946432163641, 1.199332779467545, 1.1993328332901f},
      {7, 2, 3, 0.3728947683512127, -0.3040989934940964, -0.3040989935398102f},
      {7, 3, 3, 0.395668743315433, -0.04131959881411603, -0.0413195975124836f},
      {7, 0xffffffff, 3, 0.4541875021981764, 1.090746006692694, 1.0907460451126099f},
      {7, 0x100000000, 3, 0.9775928543392528, -0.004800974111504475, -0.004800973925739527f},
      {0xfedcba9876543210, 5, 0, 0.33971446616324497, 0.6398995570808875, 0.6398995518684387f},
      {1, 27392119, 0, 0.9999999935294273, 3.6612232988012163, 3.6612234115600586f},
  };
  test::on_each_level([&] {
    for (const Known& known : kKnown) {
      CAPTURE(known.position);
      const auto rng = [&] {
        Rng r(known.seed, known.stream);
        r.set_position(known.position);
        return r;
      };
      CHECK(rng().uniform() == known.uniform);
      CHECK(rng().uniform({1}, 0, 1, DType::float64).item() == known.uniform);
      CHECK(std::fabs(rng().normal() - known.normal) <= 4e-16 * std::fabs(known.normal));
      CHECK(rng().normal({1}).item<float>() == known.rounded);
    }
  });
}

TEST_CASE("random: normal numbers agree with the formula to a few units in the last place, at every width") {
  test::on_each_level([] {
    double worst = 0;
    for (const Index n : {1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 33, 127, 128, 129, 20000}) {
      CAPTURE(n);
      Rng rng(5, 2), single(5, 2);
      const Tensor wide = rng.normal({n}, 0, 1, DType::float64);
      rng.set_position(0);
      const Tensor narrow = rng.normal({n}), bf16 = Rng(5, 2).normal({n}, 0, 1, DType::bfloat16);
      for (Index i = 0; i < n; ++i) {
        const long double exact = normal_of(5, static_cast<std::uint64_t>(i), 2);
        worst = std::max(worst, static_cast<double>(std::fabs((wide.at({i}) - exact) / exact)));
        REQUIRE(narrow.at({i}) == static_cast<double>(static_cast<float>(exact)));
        REQUIRE(bf16.at({i}) == static_cast<double>(static_cast<float>(bfloat16(static_cast<float>(exact)))));
        if (n < 200) REQUIRE(wide.at({i}) == single.normal());
      }
    }
    CHECK(worst < 1e-15);
  });
}

TEST_CASE("random: tensors are filled in place") {
  Tensor x = Tensor::zeros({6, 4}, DType::float64);
  const std::uint64_t version = x.version();
  Rng rng(4), same(4);
  rng.normal_(x, 1, 2);
  CHECK(same_bits(x, same.normal({6, 4}, 1, 2, DType::float64)));
  CHECK(x.version() > version);
  Tensor column = x.slice(1, 1, 2);
  rng.uniform_(column, 5, 6);
  CHECK(same_bits(column.contiguous(), same.uniform({6, 1}, 5, 6, DType::float64)));
  CHECK(rng.position() == 30);
  CHECK(x.at({0, 0}) == Rng(4).normal({6, 4}, 1, 2, DType::float64).at({0, 0}));
}

namespace {

// The mean of f over the values.
template <class F>
double mean_of(const std::vector<double>& v, F f) {
  double sum = 0;
  for (const double x : v) sum += f(x);
  return sum / static_cast<double>(v.size());
}

// The largest distance between the empirical and the given distribution function (Kolmogorov-Smirnov), times sqrt(n).
// The probability of a value above 1.95 is 0.001.
template <class F>
double distance(std::vector<double> v, F cdf) {
  std::sort(v.begin(), v.end());
  const double n = static_cast<double>(v.size());
  double max_distance = 0;
  for (std::size_t i = 0; i < v.size(); ++i) {
    const double p = cdf(v[i]), below = static_cast<double>(i) / n;
    max_distance = std::max({max_distance, p - below, below + 1 / n - p});
  }
  return max_distance * std::sqrt(n);
}

}  // namespace

TEST_CASE("random: uniform and normal numbers have their moments and distribution, neighbours are independent") {
#if defined(HEED_SANITIZED)
  constexpr Index count = 100000;  // under sanitizers each number takes 20 times as long, and the same kernels run
#else
  constexpr Index count = 1000000;
#endif
  const double root = std::sqrt(static_cast<double>(count));
  Rng rng(11);
  for (const DType t : {DType::float32, DType::float64}) {
    const std::vector<double> u = rng.uniform({count}, -1, 3, t).to_vector<double>(),
                              z = rng.normal({count}, 2, 0.5, t).to_vector<double>();
    CHECK(distance(u, [](double x) { return (x + 1) / 4; }) < 1.95);
    CHECK(distance(z, [](double x) { return 0.5 * std::erfc(-(x - 2) / 0.5 / std::sqrt(2.0)); }) < 1.95);
    const auto standard = [](double x) { return (x - 2) / 0.5; };
    // For a standard normal number, the powers 1 to 4 have means 0, 1, 0, 3 and deviations 1, sqrt(2), sqrt(15),
    // sqrt(96).
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

TEST_CASE("random: normal numbers have their tails") {
  constexpr Index count = 4000000;
  for (const DType t : {DType::float32, DType::float64}) {
    const Tensor z = Rng(12).normal({count}, 0, 1, t);
    const std::vector<double> values = z.to_vector<double>();
    for (const double bound : {2.0, 3.0, 4.0, 4.5}) {
      const double expected = static_cast<double>(count) * std::erfc(bound / std::sqrt(2.0)) / 2;
      for (const double side : {-1.0, 1.0}) {
        const auto beyond =
            std::count_if(values.begin(), values.end(), [=](double x) { return side * x > bound; });
        CHECK(std::fabs(static_cast<double>(beyond) - expected) < 4 * std::sqrt(expected));
      }
    }
    const double greatest = *std::max_element(values.begin(), values.end());
    CHECK(greatest > 4.7);
    CHECK(greatest < 6.2);
  }
}

TEST_CASE("random: the upper limit is never reached, in any type") {
  // At this position u = 1 - 6.5e-9, which float32 rounds to 1.
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
  CHECK(chi2 < 22.5);  // probability 0.001 at 6 degrees of freedom
  CHECK(rng.integers({4}, 7, 8).to_vector<int>() == std::vector<int>{7, 7, 7, 7});
  // With a range of 3/4 of all 64-bit numbers, taking remainders would favour the lower third.
  const Index wide = Index{3} << 61;
  int low = 0;
  for (int i = 0; i < 3000; ++i) low += rng.integer(wide) < wide / 3 ? 1 : 0;
  CHECK(std::abs(low - 1000) < 4 * 26);

  std::map<std::vector<Index>, double> seen;
  for (int i = 0; i < 24000; ++i) seen[rng.permutation(4)] += 1;
  CHECK(seen.size() == 24);
  chi2 = 0;
  for (const auto& [order, c] : seen) chi2 += (c - 1000) * (c - 1000) / 1000;
  CHECK(chi2 < 49.7);  // probability 0.001 at 23 degrees of freedom
  std::vector<Index> order = rng.permutation(1000);
  std::sort(order.begin(), order.end());
  for (Index i = 0; i < 1000; ++i) CHECK(order[static_cast<std::size_t>(i)] == i);
  CHECK(rng.permutation(0).empty());
  CHECK(rng.permutation(1) == std::vector<Index>{0});
}

TEST_CASE("random: invalid limits are errors that name them") {
  Rng rng;
  test::check_errors({
      {"integer: n is 0; it must be 1 or more", [&] { rng.integer(0); }},
      {"permutation: n is -1; it must be in [0, 2^48)", [&] { rng.permutation(-1); }},
      {"integers: low is 3 and high is 3; low must be less than high", [&] { rng.integers({2}, 3, 3); }},
      {"integers: low is 0 and high is 2147483649; integers in [low, high) must fit int32",
       [&] { rng.integers({2}, 0, 2147483649); }},
      {"integers: low is -2147483649 and high is 0; integers in [low", [&] { rng.integers({2}, -2147483649, 0); }},
      {"uniform: low is 1 and high is 0; low must be at most high, and both must be finite",
       [&] { rng.uniform({2}, 1, 0); }},
      {"uniform: low is 0 and high is inf; low must be at most high, and both must be finite",
       [&] { rng.uniform({2}, 0, INFINITY); }},
      {"normal: mean is 0 and deviation is -1; the deviation must be 0 or more, and both must be finite",
       [&] { rng.normal({2}, 0, -1); }},
      {"uniform_: the tensor is undefined; it must have values",
       [&] {
         Tensor x;
         rng.uniform_(x);
       }},
      {"normal_: the tensor is undefined; it must have values",
       [&] {
         Tensor x;
         rng.normal_(x);
       }},
      {"uniform: the dtype is int32; it must be float32, float64 or bfloat16",
       [&] { rng.uniform({2}, 0, 1, DType::int32); }},
      {"normal: the dtype is bool8; it must be float32, float64 or bfloat16",
       [&] { rng.normal({2}, 0, 1, DType::bool8); }},
  });
}

// Random tensors from Philox blocks: the number at a position depends on seed, stream and position alone.
#include <algorithm>
#include <cmath>
#include <heed/core/detail/elementwise.hpp>
#include <heed/core/parallel.hpp>
#include <heed/core/random.hpp>
#include <limits>
#include <numeric>

namespace heed {
namespace {

double to_unit(std::uint32_t high, std::uint32_t low) {  // [0, 1), 53 bits
  return static_cast<double>((static_cast<std::uint64_t>(high) << 32 | low) >> 11) * 0x1p-53;
}

double normal_of(const std::array<std::uint32_t, 4>& w) {
  const double radius = std::sqrt(-2 * std::log(1 - to_unit(w[0], w[1])));  // the logarithm of (0, 1]
  return radius * std::cos(6.283185307179586476925 * to_unit(w[2], w[3]));
}

// One block an element, so that an element's value is that of its counter, whatever the shape around it.
template <class F>
Tensor fill(const Shape& shape, DType dtype, F&& value) {
  Tensor x = Tensor::empty(shape, dtype);
  parallel_for(x.numel(), grain_for(8), [&](Index begin, Index end) {
    visit_dtype(dtype, [&](auto t) {
      using T = decltype(t);
      for (Index i = begin; i < end; ++i) x.ptr<T>()[i] = detail::convert<T>(value(i));
    });
  });
  return x;
}

void check_floating(const char* what, DType dtype) {
  require(is_floating(dtype), what, ": the dtype is ", name_of(dtype), "; it must be float32, float64 or bfloat16");
}

// The greatest value of the dtype below `high`. Numbers up to it round to at most it.
double below(double high, DType dtype) {
  if (dtype == DType::float64) return std::nextafter(high, -INFINITY);
  if (dtype == DType::float32) {
    const float x = static_cast<float>(high);
    return static_cast<double>(static_cast<double>(x) < high ? x : std::nextafter(x, -INFINITY));
  }
  const auto exact = [](bfloat16 b) { return static_cast<double>(static_cast<float>(b)); };
  bfloat16 b(static_cast<float>(high));
  while (exact(b) >= high) {  // one step: away from 0 where negative
    if (exact(b) > 0)
      --b.bits;
    else
      b.bits = exact(b) == 0 ? 0x8001 : static_cast<std::uint16_t>(b.bits + 1);
  }
  return exact(b);
}

}  // namespace

std::array<std::uint32_t, 4> philox(std::uint64_t key, std::uint64_t counter_low, std::uint64_t counter_high) {
  auto c0 = static_cast<std::uint32_t>(counter_low), c1 = static_cast<std::uint32_t>(counter_low >> 32);
  auto c2 = static_cast<std::uint32_t>(counter_high), c3 = static_cast<std::uint32_t>(counter_high >> 32);
  auto k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c0, p1 = std::uint64_t{0xCD9E8D57u} * c2;
    const auto h0 = static_cast<std::uint32_t>(p0 >> 32), h1 = static_cast<std::uint32_t>(p1 >> 32);
    c0 = h1 ^ c1 ^ k0;
    c1 = static_cast<std::uint32_t>(p1);
    c2 = h0 ^ c3 ^ k1;
    c3 = static_cast<std::uint32_t>(p0);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {c0, c1, c2, c3};
}

std::uint64_t Rng::next() {
  const auto w = philox(seed_, position_++, stream_);
  return static_cast<std::uint64_t>(w[0]) << 32 | w[1];
}

double Rng::uniform() {
  const auto w = philox(seed_, position_++, stream_);
  return to_unit(w[0], w[1]);
}

double Rng::normal() { return normal_of(philox(seed_, position_++, stream_)); }

Index Rng::integer(Index n) {
  require(n > 0, "integer: n is ", n, "; it must be 1 or more");
  const auto range = static_cast<std::uint64_t>(n);
  const std::uint64_t unbiased =
      ~std::uint64_t{0} - (~std::uint64_t{0} % range + 1) % range;  // the last value of a whole number of ranges
  for (;;) {
    const std::uint64_t v = next();
    if (v <= unbiased) return static_cast<Index>(v % range);
  }
}

std::vector<Index> Rng::permutation(Index n) {
  require(n >= 0 && n < Index{1} << 48, "permutation: n is ", n,
          "; it must be 0 or more, and memory must hold n numbers");
  std::vector<Index> p(static_cast<std::size_t>(n));
  std::iota(p.begin(), p.end(), Index{0});
  for (Index i = n - 1; i > 0; --i)
    std::swap(p[static_cast<std::size_t>(i)], p[static_cast<std::size_t>(integer(i + 1))]);  // Fisher-Yates
  return p;
}

Tensor Rng::uniform(const Shape& shape, double low, double high, DType dtype) {
  check_floating("uniform", dtype);
  require(low <= high && std::isfinite(high - low), "uniform: low is ", low, " and high is ", high,
          "; low must not be greater, and both finite");
  const std::uint64_t start = advance(static_cast<std::uint64_t>(shape.numel()));
  const double most = low < high ? below(high, dtype) : high;  // what rounding to the dtype may not exceed
  return fill(shape, dtype, [this, start, low, high, most](Index i) {
    const auto w = philox(seed_, start + static_cast<std::uint64_t>(i), stream_);
    return std::min(most, low + (high - low) * to_unit(w[0], w[1]));
  });
}

Tensor Rng::normal(const Shape& shape, double mean, double deviation, DType dtype) {
  check_floating("normal", dtype);
  require(deviation >= 0 && std::isfinite(mean) && std::isfinite(deviation), "normal: mean is ", mean,
          " and deviation is ", deviation, "; the deviation must not be negative, and both finite");
  const std::uint64_t start = advance(static_cast<std::uint64_t>(shape.numel()));
  return fill(shape, dtype, [this, start, mean, deviation](Index i) {
    return mean + deviation * normal_of(philox(seed_, start + static_cast<std::uint64_t>(i), stream_));
  });
}

Tensor Rng::integers(const Shape& shape, Index low, Index high) {
  require(low < high, "integers: low is ", low, " and high is ", high, "; low must be less");
  require(low >= std::numeric_limits<std::int32_t>::min() && high - 1 <= std::numeric_limits<std::int32_t>::max(),
          "integers: low is ", low, " and high is ", high, "; both must be int32, or high one more");
  Tensor x = Tensor::empty(shape, DType::int32);
  for (Index i = 0; i < x.numel(); ++i) x.ptr<std::int32_t>()[i] = static_cast<std::int32_t>(low + integer(high - low));
  return x;
}

Rng& default_rng() {
  thread_local Rng rng;
  return rng;
}

void manual_seed(std::uint64_t seed) { default_rng() = Rng(seed); }

}  // namespace heed

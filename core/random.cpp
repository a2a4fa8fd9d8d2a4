// Random numbers and tensors from Philox blocks: the number at a position depends on seed, stream and position alone.
// core/kernels/random/random.kernel.cpp fills tensors.
#include <algorithm>
#include <cmath>
#include <heed/core/kernels/random/random.hpp>
#include <heed/core/parallel.hpp>
#include <heed/core/random.hpp>
#include <limits>
#include <numeric>

namespace heed {
namespace {

kernels::RandomBlocks blocks_from(const Rng& rng, std::uint64_t position) {
  return {rng.seed(), rng.stream(), position};
}

// Fills contiguous x: calls fill(kernels of x's dtype, blocks, count, values) for its parts. Each element uses the next
// block of rng, so its value depends on its counter alone, not on the shape.
template <class Fill>
void fill_parts(Tensor& x, Rng& rng, const Fill& fill) {
  const kernels::RandomTable& table = kernels::random_table();
  const kernels::RandomBlocks blocks = blocks_from(rng, rng.advance(static_cast<std::uint64_t>(x.numel())));
  parallel_for(x.numel(), grain_for(8), [&](Index begin, Index end) {
    kernels::RandomBlocks part = blocks;
    part.position += static_cast<std::uint64_t>(begin);
    switch (x.dtype()) {
      case DType::float64: return fill(table.f64, part, end - begin, x.ptr<double>() + begin);
      case DType::bfloat16: return fill(table.bf16, part, end - begin, &x.ptr<bfloat16>()[begin].bits);
      default: return fill(table.f32, part, end - begin, x.ptr<float>() + begin);
    }
  });
  x.bump_version();
}

void check_tensor(const char* op, const Tensor& x) {
  require(x.defined(), op, "_: the tensor is undefined; it must have values");
  require(is_floating(x.dtype()), op, ": the dtype is ", x.dtype(), "; it must be float32, float64 or bfloat16");
}

// The largest value of the dtype that is less than `high`. Numbers up to this value do not round above it.
double below(double high, DType dtype) {
  if (dtype == DType::float64) return std::nextafter(high, -INFINITY);
  if (dtype == DType::float32) {
    const float x = static_cast<float>(high);
    return static_cast<double>(static_cast<double>(x) < high ? x : std::nextafter(x, -INFINITY));
  }
  const auto exact = [](bfloat16 b) { return static_cast<double>(static_cast<float>(b)); };
  bfloat16 b(static_cast<float>(high));
  while (exact(b) >= high) {  // one step down: away from 0 if negative
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

double Rng::uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }

double Rng::normal() {
  double x = 0;
  kernels::random_table().f64.normal(blocks_from(*this, position_++), 1, 0, 1, &x);
  return x;
}

Index Rng::integer(Exactly<Index> n) {
  require(n > 0, "integer: n is ", n, "; it must be 1 or more");
  const auto range = static_cast<std::uint64_t>(n);
  const std::uint64_t unbiased =
      ~std::uint64_t{0} - (~std::uint64_t{0} % range + 1) % range;  // last value of the last whole range
  for (;;) {
    const std::uint64_t v = next();
    if (v <= unbiased) return static_cast<Index>(v % range);
  }
}

std::vector<Index> Rng::permutation(Exactly<Index> n) {
  require(n >= 0 && n < Index{1} << 48, "permutation: n is ", n, "; it must be in [0, 2^48)");
  std::vector<Index> p(static_cast<std::size_t>(n));
  std::iota(p.begin(), p.end(), Index{0});
  for (Index i = n - 1; i > 0; --i)
    std::swap(p[static_cast<std::size_t>(i)], p[static_cast<std::size_t>(integer(i + 1))]);  // Fisher-Yates
  return p;
}

Tensor Rng::uniform(const Shape& shape, double low, double high, DType dtype) {
  Tensor x = Tensor::empty(shape, dtype);
  uniform_(x, low, high);
  return x;
}

Tensor Rng::normal(const Shape& shape, double mean, double deviation, DType dtype) {
  Tensor x = Tensor::empty(shape, dtype);
  normal_(x, mean, deviation);
  return x;
}

void Rng::uniform_(Tensor& x, double low, double high) {
  check_tensor("uniform", x);
  require(low <= high && std::isfinite(high - low), "uniform: low is ", low, " and high is ", high,
          "; low must be at most high, and both must be finite");
  if (!x.is_contiguous()) return x.copy_(uniform(x.shape(), low, high, x.dtype()));
  const double max = low < high ? below(high, x.dtype()) : high;  // upper bound after rounding to the dtype
  fill_parts(x, *this, [=](const auto& kernels, const auto& blocks, Index n, auto* values) {
    kernels.uniform(blocks, n, low, high - low, max, values);
  });
}

void Rng::normal_(Tensor& x, double mean, double deviation) {
  check_tensor("normal", x);
  require(deviation >= 0 && std::isfinite(mean) && std::isfinite(deviation), "normal: mean is ", mean,
          " and deviation is ", deviation, "; the deviation must be 0 or more, and both must be finite");
  if (!x.is_contiguous()) return x.copy_(normal(x.shape(), mean, deviation, x.dtype()));
  fill_parts(x, *this, [=](const auto& kernels, const auto& blocks, Index n, auto* values) {
    kernels.normal(blocks, n, mean, deviation, values);
  });
}

Tensor Rng::integers(const Shape& shape, Exactly<Index> low, Exactly<Index> high) {
  require(low < high, "integers: low is ", low, " and high is ", high, "; low must be less than high");
  require(low >= std::numeric_limits<std::int32_t>::min() && high - 1 <= std::numeric_limits<std::int32_t>::max(),
          "integers: low is ", low, " and high is ", high, "; integers in [low, high) must fit int32");
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

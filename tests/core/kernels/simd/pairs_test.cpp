// Dot products of bfloat16 by pairs: every level sums and rounds in the order of the machine instruction, whether or
// not the level has the instruction. Results below 2^-126 count as 0.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <heed/core/gemm/gemm.hpp>
#include <heed/heed.hpp>
#include <vector>

#include "tests/core/levels.hpp"

using namespace heed;
using heed::test::on_each_level;

namespace {

float flushed(float x) { return std::fabs(x) < 0x1p-126f ? std::copysign(0.f, x) : x; }

float number(std::uint16_t bits) {
  const std::uint32_t u = std::uint32_t{bits} << 16;
  float x;
  std::memcpy(&x, &u, sizeof x);
  return flushed(x);
}

// For each pair, sum = a1 b1 + sum and then sum = a0 b0 + sum, as the instruction is documented. Few rows have eight
// sums, each over every eighth pair, which are added in halves.
float sum_of_pairs(const std::uint16_t* a, const std::uint16_t* b, Index k, bool few) {
  float sums[8] = {};
  for (Index p = 0; p < k; p += 2)
    for (const Index i : {p + 1, p}) {  // an odd last element is paired with 0
      float& sum = sums[few ? p / 2 % 8 : 0];
      sum = flushed(std::fmaf(i < k ? number(a[i]) : 0, i < k ? number(b[i]) : 0, sum));
    }
  if (!few) return sums[0];
  for (int half = 4; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) sums[i] = flushed(sums[i] + sums[i + half]);
  return sums[0];
}

// Arbitrary finite numbers: with all exponents, or with products near the smallest float32.
std::vector<std::uint16_t> some_bits(Index n, std::uint64_t seed, bool small) {
  const Tensor x = Rng(seed).integers({2, n}, 0, 1 << 15);
  const std::vector<std::int32_t> numbers = x.to_vector<std::int32_t>();
  std::vector<std::uint16_t> bits(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < bits.size(); ++i) {
    const int exponent = small ? 50 + numbers[i] % 28 : numbers[i] % 255, rest = numbers[i + bits.size()];
    bits[i] = static_cast<std::uint16_t>((rest & 0x100) << 7 | exponent << 7 | (rest & 0x7f));
  }
  return bits;
}

Tensor tensor_of(const std::vector<std::uint16_t>& bits, const Shape& shape) {
  const Tensor x = Tensor::zeros(shape, DType::bfloat16);
  std::memcpy(x.raw(), bits.data(), bits.size() * sizeof bits[0]);
  return x;
}

bool same_number(float x, float y) { return std::memcmp(&x, &y, sizeof x) == 0 || (std::isnan(x) && std::isnan(y)); }

}  // namespace

TEST_CASE("simd_pairs: sums of products of pairs, of any size, on every level with fma") {
  for (const bool small : {false, true})
    for (const Index k : {1, 2, 3, 6, 16, 19, 40})
      for (const Index m : {1, 3, 8, 70}) {  // few rows, and blocks
        CAPTURE(small);
        CAPTURE(k);
        CAPTURE(m);
        const Index n = 37;
        const std::vector<std::uint16_t> a = some_bits(m * k, 3, small), b = some_bits(n * k, 4, small);
        const Tensor x = tensor_of(a, {m, k}), w = tensor_of(b, {n, k});
        on_each_level([&] {
          if (!kernels::fuses(kernels::level())) return;
          const std::vector<float> y = matmul(x, w.t()).to(DType::float32).to_vector<float>();
          int wrong = 0;
          for (Index i = 0; i < m; ++i)
            for (Index j = 0; j < n; ++j)
              wrong += !same_number(y[static_cast<std::size_t>(i * n + j)],
                                    sum_of_pairs(a.data() + i * k, b.data() + j * k, k, m <= 8));
          CHECK(wrong == 0);
        });
      }
}

TEST_CASE("simd_pairs: sums of products, addends and biases below 2^-126 count as 0 on every level") {
  constexpr float kTiny = 0x1p-130f;
  for (const Index m : {1, 3, 8, 70}) {  // few rows, and blocks
    CAPTURE(m);
    const Index n = 37, k = 16;
    const Tensor x = Tensor::full({m, k}, 0x1p-50f, DType::bfloat16),
                 w = Tensor::full({n, k}, 0x1p-50f, DType::bfloat16);
    // All sums are 2^-96. Times 2^-40 they are below 2^-126, as are c and the bias, so the result is 0. Times 2^-20
    // they are normal numbers.
    for (const double alpha : {0x1p-40, 0x1p-20}) {
      CAPTURE(alpha);
      on_each_level([&] {
        if (!kernels::fuses(kernels::level())) return;
        const Tensor c = Tensor::full({m, n}, kTiny), bias = Tensor::full({n}, kTiny);
        Gemm g{.m = m,
               .n = n,
               .k = k,
               .a = {x.raw(), x.dtype(), k, 1},
               .b = {w.raw(), w.dtype(), 1, k},
               .c = c.raw(),
               .ldc = n,
               .alpha = alpha,
               .accumulate = true,
               .bias = bias.raw()};
        gemm(g);
        for (const float y : c.to_vector<float>()) CHECK(y == (alpha == 0x1p-20 ? 0x1p-116f : 0.f));
      });
    }
  }
}

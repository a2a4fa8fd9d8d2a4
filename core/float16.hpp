// Conversion between float32 and float16 (IEEE 754's binary16: sign, 5 bits of exponent, 10 bits of mantissa). Without
// branches, so that compilers vectorise loops over these functions.
#pragma once
#include <bit>
#include <cstdint>

namespace heed::detail {

// Exact. NaN stays NaN.
inline float from_float16(std::uint16_t bits) {
  constexpr std::uint32_t kRebias = 112u << 23, kLast = 31u << 23;  // 112: difference of the exponents' biases
  const std::uint32_t shifted = (bits & 0x7fffu) << 13, sign = (bits & 0x8000u) << 16;
  const std::uint32_t normal = shifted + kRebias + (shifted >= kLast ? kRebias : 0u);
  // A subnormal number becomes the mantissa of a normal one, whose implicit 1 is then subtracted.
  const float one_more = std::bit_cast<float>(shifted + kRebias + (1u << 23)), one = std::bit_cast<float>(113u << 23);
  const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(one_more - one);
  return std::bit_cast<float>((shifted < (1u << 23) ? subnormal : normal) | sign);
}

// Rounds to nearest, ties to even. Numbers from 65520 become infinite. NaN stays NaN.
inline std::uint16_t to_float16(float x) {
  constexpr std::uint32_t kInfinite = 0x7f800000u, kOverflow = 143u << 23, kNormal = 113u << 23;  // 2^16, 2^-14
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x), size = bits & 0x7fffffffu;
  const std::uint32_t special = size > kInfinite ? 0x7e00u | ((size >> 13) & 0x1ffu) : 0x7c00u;
  // Adding 0.5 shifts the mantissa of a subnormal number into place, and rounds.
  const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(std::bit_cast<float>(size) + 0.5f) - (126u << 23);
  const std::uint32_t normal = (size - (112u << 23) + 0xfffu + ((size >> 13) & 1u)) >> 13;
  const std::uint32_t rounded = size >= kOverflow ? special : size < kNormal ? subnormal : normal;
  return static_cast<std::uint16_t>(rounded | (bits >> 16 & 0x8000u));
}

}  // namespace heed::detail

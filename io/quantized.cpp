// Blocks of ggml's quantized types. All inner loops have a constant number of iterations, and vectorise.
#include <bit>
#include <cstring>
#include <heed/data/detail/float16.hpp>
#include <heed/io/quantized.hpp>
#include <limits>

namespace heed::detail {
namespace {

// The f16 at `at`, of any alignment.
float scale_at(const std::byte* at) {
  std::uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  return from_float16(bits);
}

const std::uint8_t* unsigned_at(const std::byte* at) { return reinterpret_cast<const std::uint8_t*>(at); }
const std::int8_t* signed_at(const std::byte* at) { return reinterpret_cast<const std::int8_t*>(at); }

// y = d * (q - zero) + m for 32 numbers of 4 bits.
void read_halves(const std::uint8_t* __restrict q, float d, int zero, float m, float* __restrict y) {
  for (int i = 0; i < 16; ++i) y[i] = d * static_cast<float>((q[i] & 15) - zero) + m;
  for (int i = 0; i < 16; ++i) y[i + 16] = d * static_cast<float>((q[i] >> 4) - zero) + m;
}

// y = d * q - m for 32 numbers of 4 bits, in the halves of bytes that begin at bit `shift`.
void read_run_of_q4_k(const std::uint8_t* __restrict q, int shift, float d, float m, float* __restrict y) {
  for (int i = 0; i < 32; ++i) y[i] = d * static_cast<float>((q[i] >> shift) & 15) - m;
}

// y = d * (q - 32) for 16 numbers. The lower 4 and upper 2 bits of each begin at bits `low_shift` and `high_shift`.
void read_run_of_q6_k(const std::uint8_t* __restrict low, int low_shift, const std::uint8_t* __restrict high,
                      int high_shift, float d, float* __restrict y) {
  for (int i = 0; i < 16; ++i) {
    const int q = ((low[i] >> low_shift) & 15) | ((high[i] >> high_shift) & 3) << 4;
    y[i] = d * static_cast<float>(q - 32);
  }
}

// Scale and minimum of a run of q4_k. The first four runs have theirs in the lower 6 bits of bytes 0 to 7. The others
// have 4 bits of both in a byte of 8 to 11, and their upper 2 bits in the upper bits of bytes 0 to 7.
struct RunOfQ4K {
  int scale, minimum;
};
RunOfQ4K run_of_q4_k(const std::uint8_t* packed, int run) {
  if (run < 4) return {packed[run] & 63, packed[run + 4] & 63};
  return {(packed[run + 4] & 15) | packed[run - 4] >> 6 << 4, packed[run + 4] >> 4 | packed[run] >> 6 << 4};
}

}  // namespace

void read_q8_0(const std::byte* blocks, Index count, float* y) {
  for (; count > 0; --count, blocks += 34, y += 32) {
    const float d = scale_at(blocks);
    const std::int8_t* __restrict q = signed_at(blocks + 2);
    float* __restrict to = y;
    for (int i = 0; i < 32; ++i) to[i] = d * static_cast<float>(q[i]);
  }
}

void read_q4_0(const std::byte* blocks, Index count, float* y) {
  constexpr float kNothing = -0.0f;  // x + -0 has the bits of x, for x = 0 too
  for (; count > 0; --count, blocks += 18, y += 32)
    read_halves(unsigned_at(blocks + 2), scale_at(blocks), 8, kNothing, y);
}

void read_q4_1(const std::byte* blocks, Index count, float* y) {
  for (; count > 0; --count, blocks += 20, y += 32)
    read_halves(unsigned_at(blocks + 4), scale_at(blocks), 0, scale_at(blocks + 2), y);
}

void read_q4_k(const std::byte* blocks, Index count, float* y) {
  for (; count > 0; --count, blocks += 144, y += 256) {
    const float d = scale_at(blocks), m = scale_at(blocks + 2);
    for (int run = 0; run < 8; ++run) {
      const auto [scale, minimum] = run_of_q4_k(unsigned_at(blocks + 4), run);
      read_run_of_q4_k(unsigned_at(blocks + 16 + run / 2 * 32), run % 2 * 4, d * static_cast<float>(scale),
                       m * static_cast<float>(minimum), y + run * 32);
    }
  }
}

void read_q6_k(const std::byte* blocks, Index count, float* y) {
  for (; count > 0; --count, blocks += 210, y += 256) {
    const float d = scale_at(blocks + 208);
    // Each half of a block has 64 bytes of lower and 32 bytes of upper bits. In a half, runs 0 to 3 have the lower
    // halves of its 64 bytes, and runs 4 to 7 the upper halves. A byte of upper bits has those of runs 0, 2, 4, 6 or of
    // runs 1, 3, 5, 7.
    for (int run = 0; run < 16; ++run) {
      const int half = run / 8, pair = run / 2 % 4, side = run % 2 * 16;
      read_run_of_q6_k(unsigned_at(blocks + half * 64 + pair % 2 * 32 + side), pair / 2 * 4,
                       unsigned_at(blocks + 128 + half * 32 + side), pair * 2,
                       d * static_cast<float>(signed_at(blocks + 192)[run]), y + run * 16);
    }
  }
}

bool write_q8_0(const float* x, std::byte* block) {
  constexpr std::int32_t kInfinite = 0x7f800000;
  std::int32_t largest = 0;  // bits of max|x|, which are in the order of the numbers, NaN last
  for (int i = 0; i < 32; ++i) {
    const std::int32_t bits = std::bit_cast<std::int32_t>(x[i]) & 0x7fffffff;
    largest = bits > largest ? bits : largest;
  }
  const float d = std::bit_cast<float>(largest) / 127.0f;
  const std::uint16_t scale = to_float16(d);
  if (largest >= kInfinite || (scale & 0x7c00u) == 0x7c00u) return false;
  const float reciprocal = 1.0f / d;  // infinite if d is 0 or almost 0; then the scale is 0, and so are all numbers
  const float inverse = reciprocal <= std::numeric_limits<float>::max() ? reciprocal : 0.0f;
  std::int8_t q[32];
  for (int i = 0; i < 32; ++i) {
    const float scaled = x[i] * inverse;                    // |scaled| < 127.5
    const int whole = static_cast<int>(scaled);             // towards 0
    const float rest = scaled - static_cast<float>(whole);  // exact
    q[i] = static_cast<std::int8_t>(whole + (rest >= 0.5f ? 1 : 0) - (rest <= -0.5f ? 1 : 0));
  }
  std::memcpy(block, &scale, sizeof scale);
  std::memcpy(block + sizeof scale, q, sizeof q);
  return true;
}

}  // namespace heed::detail

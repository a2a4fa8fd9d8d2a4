// Blocks of ggml's quantized types, and copies of quantized tensors. All inner loops over a block have a constant
// number of iterations, and vectorise.
#include <bit>
#include <cstring>
#include <heed/core/float16.hpp>
#include <heed/core/parallel.hpp>
#include <heed/core/quantized.hpp>
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

void refuse_quantized(DType t) {
  fail("tensor: a tensor is ", t, ", whose numbers are in blocks of ", kBlockNumbers,
       "; only whole rows can be selected, and to(DType::float32) gives the numbers");
}

void read_blocks(DType type, const std::byte* blocks, Index count, float* y) {
  switch (type) {
    case DType::q8_0: return read_q8_0(blocks, count, y);
    case DType::q4_0: return read_q4_0(blocks, count, y);
    case DType::q4_1: return read_q4_1(blocks, count, y);
    default: fail("read_blocks: the dtype is ", type, "; it must be q8_0, q4_0 or q4_1");
  }
}

bool has_whole_rows(const Tensor& x) {
  if (x.rank() == 0 || x.strides().back() != 1 || x.shape().back() % kBlockNumbers != 0) return false;
  for (int a = 0; a + 1 < x.rank(); ++a)
    if (x.strides()[a] % kBlockNumbers != 0) return false;
  return x.offset() % kBlockNumbers == 0;
}

namespace {

// The first element of row r, counted from that of x.
Index row_offset(const Tensor& x, Index r) {
  Index offset = 0;
  for (int a = x.rank() - 2; a >= 0; r /= x.shape()[a], --a) offset += r % x.shape()[a] * x.strides()[a];
  return offset;
}

std::byte* row_of(const Tensor& x, Index r) {
  return static_cast<std::byte*>(x.memory()) + bytes_of(x.dtype(), row_offset(x, r));
}

// Calls f(r) for the rows of x, on all threads.
template <class F>
void for_each_row(const Tensor& x, const F& f) {
  parallel_for_each(x.rows(), grain_for(x.shape().back()), f);
}

// to: float32, contiguous. from: quantized, with whole rows.
void unpack_rows(const Tensor& to, const Tensor& from) {
  const Index n = from.shape().back();
  for_each_row(
      from, [&](Index r) { read_blocks(from.dtype(), row_of(from, r), n / kBlockNumbers, to.ptr<float>() + r * n); });
}

// to: q8_0, with whole rows. from: float32, contiguous.
void round_rows(const Tensor& to, const Tensor& from) {
  const Index n = to.shape().back();
  for_each_row(to, [&](Index r) {
    const float* x = from.ptr<float>() + r * n;
    std::byte* block = row_of(to, r);
    for (Index i = 0; i < n; i += kBlockNumbers, block += bytes_of(DType::q8_0, kBlockNumbers))
      require(write_q8_0(x + i, block), "to: row ", r, " of ", from, " has numbers near ", x[i],
              " that q8_0 cannot hold; all must be finite, and at most 8.3 million");
  });
}

}  // namespace

void copy_quantized(Tensor& to, const Tensor& from) {
  const Tensor& quantized = is_quantized(from.dtype()) ? from : to;
  if (quantized.rank() == 2 && quantized.strides()[0] == 1 && quantized.strides()[1] != 1) {
    Tensor turned = to.t();
    return copy_quantized(turned, from.t());
  }
  if (!has_whole_rows(quantized)) refuse_quantized(quantized.dtype());
  if (to.dtype() == from.dtype() && has_whole_rows(to) && has_whole_rows(from)) {
    const std::size_t bytes = bytes_of(to.dtype(), to.shape().back());
    return for_each_row(to, [&](Index r) { std::memcpy(row_of(to, r), row_of(from, r), bytes); });
  }
  if (to.dtype() == from.dtype()) refuse_quantized(to.dtype());
  if (is_quantized(from.dtype()) && !is_quantized(to.dtype())) {
    const bool direct = to.dtype() == DType::float32 && to.is_contiguous();
    Tensor numbers = direct ? to : Tensor::empty(from.shape());
    unpack_rows(numbers, from);
    if (!direct) copy_values(to, numbers);
    return;
  }
  require(to.dtype() == DType::q8_0, "to: x is ", from, "; it cannot be converted to ", to.dtype(),
          ", but to float32, bfloat16 and q8_0");
  Tensor numbers = from.dtype() == DType::float32 && from.is_contiguous() ? from : Tensor::empty(from.shape());
  if (!numbers.shares_storage(from)) copy_values(numbers, from);
  round_rows(to, numbers);
}

}  // namespace heed::detail

// Element types of tensors, their sizes and names, and the numbers that each can hold.
//
// Example:
//
//   static_assert(dtype_of<float> == DType::float32 && size_of(DType::bfloat16) == 2);
//   std::cout << name_of(DType::int32) << '\n';  // int32
//   const bool fits = holds(DType::int32, 0.5);  // false
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string_view>
#include <vector>

namespace heed {

// The type of axes' sizes, positions and counts.
using Index = std::int64_t;

// The token ids of a text, each at least 0 and less than the size of the vocabulary. Batches store them as int32.
using Tokens = std::vector<std::int32_t>;

// Ops compute in float32 and float64. bfloat16 is for storage: ops read it and sum in float32. int32 is for indices,
// bool8 for masks.
//
// The others are ggml's quantized types, for frozen weights of linear() and tables of embedding(). A row consists of
// blocks of 32 numbers, each an integer times the scale of the block, which is a float16: q8_0 has integers of 8 bits,
// q4_0 and q4_1 of 4 bits, and q4_1 adds a minimum per block. Only whole rows can be selected. to(DType::float32) gives
// the numbers, and to(DType::q8_0) rounds to q8_0.
enum class DType : std::uint8_t { float32, float64, bfloat16, int32, bool8, q8_0, q4_0, q4_1 };

// Whether the dtype is one of the quantized types.
constexpr bool is_quantized(DType t) { return t >= DType::q8_0; }

// Numbers per block of the quantized types.
inline constexpr Index kBlockNumbers = 32;

// The upper 16 bits of a float32. Conversion from float rounds to nearest, ties to even; NaN stays NaN.
struct bfloat16 {
  std::uint16_t bits = 0;  // sign, 8 bits of exponent, 7 bits of mantissa

  bfloat16() = default;
  // Rounds x.
  explicit bfloat16(float x) {
    std::uint32_t u;
    std::memcpy(&u, &x, sizeof u);
    const bool nan = (u & 0x7fffffffu) > 0x7f800000u;
    bits = nan ? static_cast<std::uint16_t>((u >> 16) | 0x40u)
               : static_cast<std::uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  }
  // Exact.
  explicit operator float() const {
    const std::uint32_t u = static_cast<std::uint32_t>(bits) << 16;
    float x;
    std::memcpy(&x, &u, sizeof x);
    return x;
  }
};

namespace detail {
[[noreturn]] void refuse_quantized(DType t);  // throws Error: a quantized dtype has no single elements
}

// Calls f(T{}), where T is the C++ type of the dtype, and returns its result. Throws Error for quantized types.
template <class F>
constexpr decltype(auto) visit_dtype(DType t, F&& f) {
  switch (t) {
    case DType::float64: return f(double{});
    case DType::bfloat16: return f(bfloat16{});
    case DType::int32: return f(std::int32_t{});
    case DType::bool8: return f(bool{});
    case DType::float32: return f(float{});
    default: detail::refuse_quantized(t);
  }
}

// Bytes per element. Throws Error for quantized types: see bytes_of().
constexpr std::size_t size_of(DType t) {
  return visit_dtype(t, []<class T>(T) { return sizeof(T); });
}

// Bytes of n neighbouring elements: for quantized types n must be a multiple of 32, else Error.
constexpr std::size_t bytes_of(DType t, Index n) {
  if (!is_quantized(t)) return static_cast<std::size_t>(n) * size_of(t);
  if (n % kBlockNumbers != 0) detail::refuse_quantized(t);
  constexpr std::size_t kBlockBytes[] = {34, 18, 20};  // q8_0, q4_0, q4_1
  const auto type = static_cast<std::size_t>(t) - static_cast<std::size_t>(DType::q8_0);
  return static_cast<std::size_t>(n / kBlockNumbers) * kBlockBytes[type];
}

// The name as it is spelled in DType: "float32".
constexpr std::string_view name_of(DType t) {
  constexpr std::string_view kNames[] = {"float32", "float64", "bfloat16", "int32",
                                         "bool8",   "q8_0",    "q4_0",     "q4_1"};  // in the order of DType
  return kNames[static_cast<std::size_t>(t)];
}

// Whether the dtype is float32, float64 or bfloat16.
constexpr bool is_floating(DType t) { return t == DType::float32 || t == DType::float64 || t == DType::bfloat16; }

// Whether a tensor of this dtype can be set to the number. int32 and bool8 must hold it exactly; floating types round.
constexpr bool holds(DType t, double value) {
  if (t == DType::bool8) return value == 0 || value == 1;
  if (t != DType::int32) return true;
  using Limits = std::numeric_limits<std::int32_t>;
  return value >= Limits::min() && value <= Limits::max() && value == static_cast<std::int32_t>(value);
}

// The dtype of a C++ type: dtype_of<float> is DType::float32.
template <class T> struct DTypeOf;
template <> struct DTypeOf<float> { static constexpr DType value = DType::float32; };
template <> struct DTypeOf<double> { static constexpr DType value = DType::float64; };
template <> struct DTypeOf<bfloat16> { static constexpr DType value = DType::bfloat16; };
template <> struct DTypeOf<std::int32_t> { static constexpr DType value = DType::int32; };
template <> struct DTypeOf<bool> { static constexpr DType value = DType::bool8; };
template <class T> inline constexpr DType dtype_of = DTypeOf<T>::value;

namespace detail {
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
}

}  // namespace heed

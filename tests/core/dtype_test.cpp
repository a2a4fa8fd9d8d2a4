// Element types: names, sizes, ranges and rounding.
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <heed/core/tensor.hpp>
#include <type_traits>

#include "tests/core/levels.hpp"
#include "tests/support.hpp"

using namespace heed;

namespace {

constexpr DType kTypes[] = {DType::float32, DType::float64, DType::bfloat16, DType::int32, DType::bool8};

// The value of a finite bfloat16, computed from its sign, exponent and fraction.
double exact(std::uint32_t bits) {
  const int exponent = static_cast<int>(bits >> 7 & 255), fraction = static_cast<int>(bits & 127);
  const double size = exponent == 0 ? std::ldexp(fraction, -133) : std::ldexp(128 + fraction, exponent - 134);
  return bits >> 15 ? -size : size;
}

float float_of(std::uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

}  // namespace

TEST_CASE("dtype: names, sizes, and which are floating") {
  const char* names[] = {"float32", "float64", "bfloat16", "int32", "bool8"};
  const std::size_t sizes[] = {4, 8, 2, 4, 1};
  for (int i = 0; i < 5; ++i) {
    CHECK(name_of(kTypes[i]) == names[i]);
    CHECK(size_of(kTypes[i]) == sizes[i]);
    CHECK(is_floating(kTypes[i]) == (i < 3));
    // visit_dtype passes a value of the C++ type that belongs to the dtype.
    visit_dtype(kTypes[i], [&](auto t) {
      CHECK(dtype_of<decltype(t)> == kTypes[i]);
      CHECK(sizeof t == sizes[i]);
    });
  }
}

TEST_CASE("dtype: int32 and bool8 hold only numbers of their range, floating types hold every number") {
  const double whole[] = {0, 1, 2, -1, 2147483647, -2147483648.0}, others[] = {0.5, 2147483648.0, -2147483649.0, 1e300};
  for (const double x : whole) {
    CHECK(holds(DType::int32, x));
    CHECK(holds(DType::bool8, x) == (x == 0 || x == 1));
  }
  for (const double x : others) {
    CHECK(!holds(DType::int32, x));
    CHECK(!holds(DType::bool8, x));
  }
  for (const double x : {test::kNaN, test::kInf, -test::kInf}) {
    CHECK(!holds(DType::int32, x));
    CHECK(!holds(DType::bool8, x));
    for (const DType t : {DType::float32, DType::float64, DType::bfloat16}) CHECK(holds(t, x));
  }
}

TEST_CASE("dtype: float32 rounds to the nearest bfloat16, ties to even") {
  int wrong_values = 0, wrong_roundings = 0;
  for (std::uint32_t upper = 0; upper < 0x10000; ++upper) {
    if ((upper & 0x7f80) == 0x7f80) continue;  // infinities and NaN
    bfloat16 stored;
    stored.bits = static_cast<std::uint16_t>(upper);
    wrong_values += static_cast<double>(static_cast<float>(stored)) != exact(upper);
    const bool last = (upper & 0x7fff) == 0x7f7f;  // the next value is infinity, treated as 2^128
    const double next = last ? std::copysign(std::ldexp(1, 128), exact(upper)) : exact(upper + 1);
    for (const std::uint32_t lower : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      const float x = float_of(upper << 16 | lower);
      const double down = std::abs(x - exact(upper)), up = std::abs(next - x);
      const bool rounds_down = down < up || (down == up && upper % 2 == 0);
      wrong_roundings += bfloat16(x).bits != upper + (rounds_down ? 0 : 1);
    }
  }
  CHECK(wrong_values == 0);
  CHECK(wrong_roundings == 0);
}

TEST_CASE("dtype: infinities and NaN keep their kind in bfloat16, even a NaN whose upper half is that of infinity") {
  for (const float x : {static_cast<float>(test::kInf), -static_cast<float>(test::kInf)})
    CHECK(static_cast<float>(bfloat16(x)) == x);
  for (const std::uint32_t bits : {0x7fc00000u, 0x7f800001u, 0xff800001u, 0x7fffffffu, 0xffffffffu}) {
    const float x = static_cast<float>(bfloat16(float_of(bits)));
    CHECK(std::isnan(x));
    CHECK(std::signbit(x) == (bits >> 31 == 1));
  }
}

TEST_CASE("dtype: tensors convert to bfloat16 and back as single numbers do, on each level, at any length and offset") {
  std::vector<float> numbers;
  for (std::uint32_t upper = 0; upper < 0x10000; upper += 3)
    for (const std::uint32_t lower : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu})
      numbers.push_back(float_of(upper << 16 | lower));
  const Tensor x = Tensor::from(numbers, {static_cast<Index>(numbers.size())});
  test::on_each_level([&] {
    for (const Index begin : {0, 1, 5})
      for (const Index end : {begin, begin + 1, begin + 15, begin + 16, begin + 40, x.numel()}) {
        const Tensor rounded = x.slice(0, begin, end).to(DType::bfloat16), again = rounded.to(DType::float32);
        int wrong = 0;
        for (Index i = begin; i < end; ++i) {
          const bfloat16 expected(numbers[static_cast<std::size_t>(i)]);
          wrong += rounded.ptr<bfloat16>()[i - begin].bits != expected.bits;
          const float widened = again.ptr<float>()[i - begin];
          wrong += std::bit_cast<std::uint32_t>(widened) != static_cast<std::uint32_t>(expected.bits) << 16;
        }
        CHECK(wrong == 0);
      }
  });
}

// Products whose right operand is packed whole or in parts, and products in halves of k.
#include <array>

#include "tests/core/gemm/testing.hpp"
#include "tests/core/levels.hpp"

using namespace heed;
using namespace heed::test;

TEST_CASE("gemm: b has more columns than are packed at once") {
  PlainProducts plain;
  on_each_level([&] {
    const GemmOptions o{.a = Layout::columns, .b = Layout::columns, .bias = true};
    expect<float>(40, 5000, 700, o, plain);
  });
}

TEST_CASE("gemm: transposed a times a b that exceeds the L2 cache, in blocks of k") {
  PlainProducts plain;
  on_each_level([&] {
    for (const Index n : {199, 208, 257}) {
      expect<float>(130, n, 1300, {.a = Layout::columns, .bias = true}, plain);
      expect<double>(130, n, 700,
                     {.a = Layout::columns, .a_type = DType::float64, .b_type = DType::float64, .alpha = 2}, plain);
    }
    expect<float>(131, 200, 2603,
                  {.a = Layout::columns, .a_type = DType::bfloat16, .b_type = DType::bfloat16, .accumulate = true},
                  plain);
  });
}

TEST_CASE("gemm: transposed a times few columns of b, as for a weight gradient, in two halves of a long k") {
  PlainProducts plain;
  const auto check_all = [&](DType a_type, DType b_type) {
    for (const auto [m, n, k] :
         {std::array<Index, 3>{67, 45, 511}, {67, 45, 512}, {129, 65, 515}, {40, 200, 1101}, {300, 33, 577}})
      for (const bool more : {false, true}) {
        const GemmOptions o{
            .a = Layout::columns, .a_type = a_type, .b_type = b_type, .accumulate = more, .bias = more, .alpha = 0.75};
        expect_of(a_type, m, n, k, o, plain);
      }
  };
  on_each_level([&] { with_types(check_all); });
}

TEST_CASE("gemm: rows of a at distances of a multiple of 4 KB, which would share few lines of the first cache") {
  PlainProducts plain;
  on_each_float_level([&] {
    for (const bool more : {false, true}) {
      const GemmOptions one{.accumulate = more, .bias = more, .alpha = 0.75};
      const GemmOptions two{
          .a_type = DType::float64, .b_type = DType::float64, .accumulate = more, .bias = more, .alpha = 0.75};
      // Rows have a gap of two numbers.
      for (const Index m : {23, 24, 37, 200})
        expect<float>(m, 35, 1022, one, plain), expect<double>(m, 35, 510, two, plain);
      expect<float>(600, 70, 2046, one, plain);
    }
  });
}

// Products of up to 512 rows by many columns.
#include <array>

#include "tests/core/gemm/testing.hpp"
#include "tests/core/levels.hpp"
#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;

TEST_CASE("gemm: up to 512 rows by many columns, where each task packs its own strip of b") {
  PlainProducts plain;
  int number = 0;
  const auto check_all = [&](DType a_type, DType b_type) {
    for (const Layout b : kLayouts)
      for (const auto [m, n, k] : {std::array<Index, 3>{33, 385, 0},
                                   {40, 397, 1},
                                   {200, 390, 300},
                                   {40, 800, 515},
                                   {512, 385, 9},
                                   {300, 450, 1022}})
        for (const bool more : {false, true}) {
          if (!is_taken(number++, 3)) continue;
          const GemmOptions o{
              .b = b, .a_type = a_type, .b_type = b_type, .accumulate = more, .bias = more, .alpha = 0.75};
          expect_of(a_type, m, n, k, o, plain);
        }
  };
  on_each_float_level([&] { with_types(check_all); });
}

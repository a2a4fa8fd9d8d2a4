// Products against plain loops in float64: layouts, dtypes and epilogues, for every algorithm.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <heed/core/check.hpp>
#include <heed/core/parallel.hpp>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/core/gemm/testing.hpp"
#include "tests/core/levels.hpp"
#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;

namespace {

template <class T>
void check_layouts(DType a_type, DType b_type, PlainProducts& plain) {
  int number = 0;
  for (const Layout a : kLayouts)
    for (const Layout b : kLayouts) {
      const GemmOptions o{.a = a, .b = b, .a_type = a_type, .b_type = b_type};
      for (const Index m : {0, 1, 3, 4, 5, 8, 15, 97})
        for (const Index n : {0, 1, 3, 4, 9, 16, 31, 32, 65})
          for (const Index k : {0, 1, 2, 33})
            if (is_taken(number++, 5)) expect<T>(m, n, k, o, plain);
      for (const Index m : {2, 5, 6, 7, 8, 9, 17, 29, 32, 33}) expect<T>(m, m % 2 == 0 ? 11 : 40, 128 + m, o, plain);
      expect<T>(1, 300, 2100, o, plain);
      expect<T>(3, 70, 1025, o, plain);
      expect<T>(30, 40, 257, o, plain);
      expect<T>(31, 33, 515, o, plain);
      expect<T>(200, 130, 300, o, plain);  // enough work for several threads
    }
}

void check_sums(DType type, PlainProducts& plain) {
  for (int bits = 0; bits < 4; ++bits) {
    const GemmOptions o{
        .a_type = type, .b_type = type, .accumulate = (bits & 1) != 0, .bias = (bits & 2) != 0, .alpha = -0.625};
    for (const Index m : {1, 4, 19, 100})
      for (const Index n : {1, 17, 35, 96})
        for (const Index k : {0, 5, 300}) {
          if (type == DType::float64)
            expect<double>(m, n, k, o, plain);
          else
            expect<float>(m, n, k, o, plain);
        }
  }
}

}  // namespace

TEST_CASE("gemm: float32 of every layout and edge agrees with float64 loops") {
  PlainProducts plain;
  on_each_level([&] { check_layouts<float>(DType::float32, DType::float32, plain); });
}

TEST_CASE("gemm: float64 of every layout and edge agrees with plain loops") {
  PlainProducts plain;
  on_each_level([&] { check_layouts<double>(DType::float64, DType::float64, plain); });
}

TEST_CASE("gemm: bfloat16 operands, one or both, agree with float64 loops on the rounded values") {
  PlainProducts plain;
  on_each_level([&] {
    check_layouts<float>(DType::bfloat16, DType::bfloat16, plain);
    check_layouts<float>(DType::bfloat16, DType::float32, plain);
    check_layouts<float>(DType::float32, DType::bfloat16, plain);
  });
}

TEST_CASE("gemm: alpha, accumulation and bias") {
  PlainProducts plain;
  on_each_level([&] {
    check_sums(DType::float32, plain);
    check_sums(DType::float64, plain);
    check_sums(DType::bfloat16, plain);
  });
}

// Operands that are rounded to bfloat16 while they are read give the bits of operands that were rounded before.
TEST_CASE("gemm: operands that are rounded as they are read") {
  on_each_level([] {
    for (const Layout a_layout : kLayouts)
      for (const Layout b_layout : kLayouts)
        for (const Index k : {1, 2, 31, 300})
          for (const auto& [m, n] : {std::pair<Index, Index>{5, 17}, {8, 32}, {23, 70}, {33, 70}, {200, 130}}) {
            const DType wide = DType::float32, narrow = DType::bfloat16;
            const GemmOperand a = operand(m, k, a_layout, wide, 1), b = operand(k, n, b_layout, wide, 2);
            const GemmOperand a16 = operand(m, k, a_layout, narrow, 1), b16 = operand(k, n, b_layout, narrow, 2);
            const auto multiply = [&, m = m, n = n](const GemmOperand& left, const GemmOperand& right) {
              std::vector<float> c(static_cast<std::size_t>(m * n));
              gemm({.m = m, .n = n, .k = k, .a = left.in, .b = right.in, .products = narrow, .c = c.data(), .ldc = n});
              return c;
            };
            // Few rows read columns of a bfloat16 b in place and sum in another order.
            CHECK(multiply(a, b16) == multiply(a16, b16));
            const std::vector<float> expected = multiply(a16, b);
            CHECK(multiply(a, b) == expected);
            if (m > 32 || b16.in.row != 1) CHECK(multiply(a16, b16) == expected);
            const PackedMatrix packed(b.in, k, n, wide, narrow);
            std::vector<float> c(expected.size());
            packed.multiply({.m = m, .a = a.in, .c = c.data(), .ldc = n});
            CHECK(c == expected);
          }
  });
}

TEST_CASE("gemm: operands that are rounded while they are read round as bfloat16 does, NaN and infinities included") {
  on_each_level([] {
    const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
    // Ties round to the even bfloat16.
    const float values[] = {1.00390625f, 1.01171875f, 3.3895314e38f, inf, -inf, nan, 0.f, -0.f, 1e-3f};
    for (const float x : values) {
      const std::vector<float> a(8 * 5, x), one(5 * 40, 1.f);
      std::vector<float> c(8 * 40);
      gemm({.m = 8,
            .n = 40,
            .k = 1,
            .a = {a.data(), DType::float32, 5, 1},
            .b = {one.data(), DType::float32, 40, 1},
            .products = DType::bfloat16,
            .c = c.data(),
            .ldc = 40});
      const float expected = static_cast<float>(bfloat16(x));
      for (const float y : c) CHECK((std::isnan(expected) ? std::isnan(y) : y == expected));
    }
  });
}

TEST_CASE("gemm: each block of a result is finished once, whether or not the result has memory") {
  const int before = threads();
  on_each_level([] {
    for (const int count : {1, 3}) {
      set_threads(count);
      for (const auto& [m, n, k] :
           {std::tuple<Index, Index, Index>{3, 50, 40}, {9, 33, 7}, {300, 700, 90}, {64, 5000, 600}}) {
        const GemmOperand a = operand(m, k, Layout::rows, DType::float32, 1),
                          b = operand(k, n, Layout::columns, DType::float32, 2);
        std::vector<float> expected(static_cast<std::size_t>(m * n)), bias(static_cast<std::size_t>(n), 0.5f);
        gemm({.m = m, .n = n, .k = k, .a = a.in, .b = b.in, .c = expected.data(), .ldc = n, .bias = bias.data()});
        for (const bool memory : {false, true}) {
          std::vector<float> c(expected.size(), 7.f), got(expected.size());
          std::vector<int> times(expected.size());
          const auto finish = [&, n = n](const GemmBlock& block) {
            for (Index i = 0; i < block.rows; ++i)
              for (Index j = 0; j < block.columns; ++j) {
                const auto at = static_cast<std::size_t>((block.row + i) * n + block.column + j);
                got[at] = static_cast<const float*>(block.c)[i * block.ldc + j];
                ++times[at];
              }
          };
          Gemm g{.m = m,
                 .n = n,
                 .k = k,
                 .a = a.in,
                 .b = b.in,
                 .c = memory ? c.data() : nullptr,
                 .ldc = memory ? n : 0,
                 .bias = bias.data()};
          g.finish = finish;
          gemm(g);
          CHECK(got == expected);
          CHECK(std::ranges::all_of(times, [](int t) { return t == 1; }));
          if (memory) CHECK(c == expected);
        }
      }
    }
  });
  set_threads(before);
}

// A sum over rows in a finish function has the same order on every level if the function sums kFinishRows rows at a
// time.
TEST_CASE("gemm: blocks that are finished begin at multiples of kFinishRows") {
  const auto check_blocks = [](DType type, DType products) {
    const bool wide = type == DType::float64;
    const std::size_t size = size_of(type);
    for (const Index m : {33, 97, 200, 511, 513, 1024, 1500})
      for (const auto& sizes : {std::pair<Index, Index>{16, 300}, {128, 20}, {520, 64}}) {
        const Index n = sizes.first, k = sizes.second;
        CAPTURE(m);
        CAPTURE(n);
        const std::vector<char> a(static_cast<std::size_t>(m * k) * size), b(static_cast<std::size_t>(k * n) * size);
        const auto finish = [&](const GemmBlock& block) {
          if (block.row % kFinishRows != 0) FAIL("a block begins at row ", block.row);
        };
        Gemm g{.m = m, .n = n, .k = k, .a = {a.data(), type, k, 1}, .b = {b.data(), type, n, 1}, .products = products};
        std::vector<char> c(static_cast<std::size_t>(m * n) * (wide ? 8 : 4));
        g.c = c.data(), g.ldc = n;
        g.finish = finish;
        gemm(g);
        gemm_here(g);
      }
  };
  on_each_level([&] {
    check_blocks(DType::float32, DType::float32);
    check_blocks(DType::float32, DType::bfloat16);
    check_blocks(DType::float64, DType::float64);
  });
}

TEST_CASE("gemm: two batch axes, of few large or many small products") {
  on_each_level([] {
    for (const Index size : {5, 40, 260}) {
      const Index m = size, n = size + 1, k = size + 2;
      const GemmOperand a = operand(m, k, Layout::rows, DType::float32, 1, 6),
                        b = operand(k, n, Layout::columns, DType::float32, 2, 3);
      const Index a_size = m * (k + 2), b_size = n * (k + 1), c_size = m * n;
      std::vector<float> c(static_cast<std::size_t>(6 * c_size), -1.f), bias(static_cast<std::size_t>(n), 0.25f);
      Gemm g{.m = m, .n = n, .k = k, .a = a.in, .b = b.in, .c = c.data(), .ldc = n, .bias = bias.data()};
      g.batch[0] = Gemm::Axis{2, 3 * a_size, 0, 3 * c_size};  // the outer axis shares b
      g.batch[1] = {3, a_size, b_size, c_size};
      gemm(g);
      double worst = 0;
      for (Index t = 0; t < 6; ++t)
        for (Index i = 0; i < m; ++i)
          for (Index j = 0; j < n; ++j) {
            double sum = 0.25;
            for (Index p = 0; p < k; ++p)
              sum += a.exact[static_cast<std::size_t>(t * a_size + a.at(i, p))] *
                     b.exact[static_cast<std::size_t>(t % 3 * b_size + b.at(p, j))];
            worst = std::max(worst, std::abs(c[static_cast<std::size_t>(t * c_size + i * n + j)] - sum));
          }
      CHECK(worst < 1e-6 * static_cast<double>(size + 20));
    }
  });
}

RELEASE_TEST_CASE("gemm: the same bits at any number of threads") {
  const int before = threads();
  on_each_level([] {
    for (const DType type : {DType::float32, DType::float64, DType::bfloat16})
      for (const auto& [m, n, k, layout] : {std::tuple<Index, Index, Index, Layout>{384, 128, 768, Layout::columns},
                                            {768, 65, 128, Layout::columns},
                                            {768, 65, 128, Layout::rows},
                                            {67, 45, 513, Layout::columns},
                                            {2, 1000, 1200, Layout::columns},
                                            {8, 1000, 700, Layout::columns},
                                            {513, 257, 300, Layout::columns},
                                            {200, 300, 1300, Layout::columns},
                                            {200, 500, 600, Layout::rows},
                                            {300, 450, 1022, Layout::rows}}) {
        const GemmOperand a = operand(m, k, layout, type, 1), b = operand(k, n, Layout::columns, type, 2);
        std::vector<double> first, c(static_cast<std::size_t>(m * n));
        for (const int count : {1, 2, 3, 8}) {
          set_threads(count);
          std::fill(c.begin(), c.end(), 0.0);
          gemm({.m = m, .n = n, .k = k, .a = a.in, .b = b.in, .c = c.data(), .ldc = n});
          if (first.empty()) first = c;
          CHECK(std::memcmp(first.data(), c.data(), c.size() * sizeof(double)) == 0);
        }
        std::fill(c.begin(), c.end(), 0.0);
        gemm_here({.m = m, .n = n, .k = k, .a = a.in, .b = b.in, .c = c.data(), .ldc = n});
        CHECK(std::memcmp(first.data(), c.data(), c.size() * sizeof(double)) == 0);
      }
  });
  set_threads(before);
}

TEST_CASE("gemm: NaN and infinity in an operand reach only the sums that contain them") {
  on_each_level([] {
    for (const DType type : {DType::float32, DType::bfloat16}) {
      const Index m = 21, n = 37, k = 19;
      GemmOperand a = operand(m, k, Layout::rows, type, 1), b = operand(k, n, Layout::columns, type, 2);
      const float bad = std::numeric_limits<float>::quiet_NaN();
      const bfloat16 bad_half(bad);
      // The gaps after rows of a and columns of b also hold NaN, which must not enter a sum.
      const auto spoil = [&](GemmOperand& x, Index place) {
        if (type == DType::float32)
          std::memcpy(&x.bytes[static_cast<std::size_t>(place) * 4], &bad, 4);
        else
          std::memcpy(&x.bytes[static_cast<std::size_t>(place) * 2], &bad_half, 2);
      };
      for (Index i = 0; i < m; ++i) spoil(a, i * (k + 2) + k), spoil(a, i * (k + 2) + k + 1);
      for (Index j = 0; j < n; ++j) spoil(b, j * (k + 1) + k);
      spoil(a, a.at(7, 3));
      std::vector<float> c(static_cast<std::size_t>(m * n));
      gemm({.m = m, .n = n, .k = k, .a = a.in, .b = b.in, .c = c.data(), .ldc = n});
      Index wrong = 0;
      for (Index i = 0; i < m; ++i)
        for (Index j = 0; j < n; ++j) wrong += std::isnan(c[static_cast<std::size_t>(i * n + j)]) != (i == 7);
      CHECK(wrong == 0);
    }
  });
}

// Packing reuses memory of earlier products, and an odd k leaves half of a pair to fill.
TEST_CASE("gemm: NaN of the product before is not read into sums") {
  on_each_level([] {
    for (const Layout a_layout : kLayouts)
      for (const Layout b_layout : kLayouts)
        for (const Index k : {1, 33, 515}) {
          const Index m = 40, n = 20;
          const GemmOperand a = operand(m, k, a_layout, DType::float32, 1),
                            b = operand(k, n, b_layout, DType::float32, 2);
          const float nan = std::numeric_limits<float>::quiet_NaN();
          std::vector<float> c(static_cast<std::size_t>(m * n));
          const auto multiply = [&](Index depth, const MatrixIn& left, const MatrixIn& right) {
            gemm({.m = m,
                  .n = n,
                  .k = depth,
                  .a = left,
                  .b = right,
                  .products = DType::bfloat16,
                  .c = c.data(),
                  .ldc = n});
          };
          multiply(k + 1, {.data = &nan, .row = 0, .column = 0}, {.data = &nan, .row = 0, .column = 0});
          CHECK(std::isnan(c[0]));
          multiply(k, a.in, b.in);
          CHECK(std::none_of(c.begin(), c.end(), [](float x) { return std::isnan(x); }));
        }
  });
}

TEST_CASE("gemm: dtypes that cannot be multiplied are errors") {
  float x[4] = {};
  double y[4] = {};
  Gemm g{.m = 2, .n = 2, .k = 2, .c = x, .ldc = 2};
  g.a = {x, DType::float32, 2, 1};
  g.b = {y, DType::float64, 2, 1};
  CHECK_THROWS_WITH_AS(gemm(g),
                       "gemm: a is float32 and b is float64; both must be float64, or each float32 or bfloat16, or b "
                       "quantized",
                       Error);
  g.b = {x, DType::int32, 2, 1};
  CHECK_THROWS_AS(gemm(g), Error);
}

// Products of few rows: bits of each row, and division among threads.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <heed/core/parallel.hpp>
#include <utility>
#include <vector>

#include "tests/core/gemm/testing.hpp"
#include "tests/core/levels.hpp"
#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;

namespace {

std::vector<double> product_of(const GemmOperand& a, const GemmOperand& b, Index m, Index n, Index k, Index first = 0) {
  std::vector<double> c(static_cast<std::size_t>(m * n));  // memory for float32 or float64 results
  MatrixIn rows = a.in;
  rows.data = static_cast<const char*>(rows.data) + first * rows.row * static_cast<Index>(size_of(rows.dtype));
  gemm({.m = m, .n = n, .k = k, .a = rows, .b = b.in, .c = c.data(), .ldc = n});
  return c;
}

}  // namespace

TEST_CASE("gemm: in a product of few rows, each row has the bits of a product of that row alone") {
  on_each_level([] {
    for (const auto& [a_type, b_type] : {std::pair{DType::float32, DType::float32},
                                         {DType::float32, DType::bfloat16},
                                         {DType::bfloat16, DType::bfloat16},
                                         {DType::float64, DType::float64}})
      for (const Layout a_layout : kLayouts)
        for (const auto& [n, k] : {std::pair<Index, Index>{37, 150}, {1500, 700}, {5, 33}, {67, 1601}}) {
          const Index max_rows = k < 128 ? 8 : 32;
          const GemmOperand a = operand(max_rows, k, a_layout, a_type, 1),
                            b = operand(k, n, Layout::columns, b_type, 2);
          const std::size_t row = static_cast<std::size_t>(n) * (a_type == DType::float64 ? 8 : 4);
          std::vector<std::vector<double>> alone;
          for (Index i = 0; i < max_rows; ++i) alone.push_back(product_of(a, b, 1, n, k, i));
          Index wrong = 0;
          for (Index m = 2; m <= max_rows; m += test::thinned(1, 5)) {
            const std::vector<double> c = product_of(a, b, m, n, k);
            for (Index i = 0; i < m; ++i)
              wrong += std::memcmp(reinterpret_cast<const char*>(c.data()) + static_cast<std::size_t>(i) * row,
                                   alone[static_cast<std::size_t>(i)].data(), row) != 0;
          }
          CHECK(wrong == 0);
        }
  });
}

TEST_CASE("gemm: a few rows by bfloat16 have the bits of the same values in float32") {
  on_each_level([] {
    for (const Index m : {1, 3, 8, 31})
      for (const auto& [n, k] : {std::pair<Index, Index>{37, 150}, {1500, 700}}) {
        const GemmOperand a = operand(m, k, Layout::rows, DType::float32, 1),
                          narrow = operand(k, n, Layout::columns, DType::bfloat16, 2);
        std::vector<float> values(narrow.exact.begin(), narrow.exact.end());
        GemmOperand wide = narrow;
        wide.in.data = values.data(), wide.in.dtype = DType::float32;
        CHECK(product_of(a, narrow, m, n, k) == product_of(a, wide, m, n, k));
      }
  });
}

TEST_CASE("gemm: a matrix times a contiguous column") {
  on_each_level([] {
    for (const Layout a_layout : kLayouts)
      for (const Index m : {1, 2, 5, 70, 900}) {
        const Index k = 130;
        const GemmOperand a = operand(m, k, a_layout, DType::float32, 1),
                          b = operand(k, 1, Layout::rows, DType::float32, 2);
        std::vector<float> c(static_cast<std::size_t>(m), 0.5f);
        gemm({.m = m, .n = 1, .k = k, .a = a.in, .b = b.in, .c = c.data(), .ldc = 1, .alpha = 2, .accumulate = true});
        double worst = 0;
        for (Index i = 0; i < m; ++i) {
          double sum = 0.5;
          for (Index p = 0; p < k; ++p) sum += 2 * a(i, p) * b(p, 0);
          worst = std::max(worst, std::abs(c[static_cast<std::size_t>(i)] - sum));
        }
        CHECK(worst < 1e-5);
      }
  });
}

TEST_CASE("gemm: a row times a matrix that takes long to read is shared among threads, however few its multiply-adds") {
  const GemmOperand row = operand(1, 768, Layout::rows, DType::float32, 1);
  const GemmOperand weight = operand(768, 768, Layout::columns, DType::float32, 2);
  std::vector<float> c(768);
  set_threads(2);
  const AwakeThreads awake;  // on a busy machine, a sleeping thread would wake after such a short product ends
  int seen = 0;
  for (int tries = 0; seen < 2 && tries < 100000; ++tries) {
    threads_seen();
    gemm({.m = 1, .n = 768, .k = 768, .a = row.in, .b = weight.in, .c = c.data(), .ldc = 768});
    seen = std::max(seen, threads_seen());
  }
  CHECK(seen == 2);
  set_threads(0);
}

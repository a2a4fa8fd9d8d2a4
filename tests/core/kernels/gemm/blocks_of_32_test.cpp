// Products with quantized weights, against products with their numbers.
#include <cmath>
#include <cstring>
#include <heed/core/gemm/gemm.hpp>
#include <heed/core/parallel.hpp>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/core/levels.hpp"
#include "tests/core/quantized_samples.hpp"
#include "tests/support.hpp"

using namespace heed;
using heed::test::contains, heed::test::error_of, heed::test::kQuantizedTypes, heed::test::normal,
    heed::test::on_each_float_level, heed::test::on_each_level, heed::test::random_blocks, heed::test::same_bits;

namespace {

MatrixIn matrix_in(const Tensor& x) { return {x.memory(), x.dtype(), x.strides()[0], x.strides()[1]}; }

Tensor quantized_product(const Tensor& a, const Tensor& b, DType products = DType::float32) {
  Tensor c = Tensor::full({a.dim(0), b.dim(1)}, 0.5);
  const Tensor bias = normal({b.dim(1)}, 9, DType::float32);
  gemm({.m = a.dim(0),
        .n = b.dim(1),
        .k = a.dim(1),
        .a = matrix_in(a),
        .b = matrix_in(b),
        .products = products,
        .c = c.raw(),
        .ldc = b.dim(1),
        .alpha = 2,
        .accumulate = true,
        .bias = bias.raw()});
  return c;
}

// The largest error relative to eps (2 + sum of |a b|).
double error_between(const Tensor& c, const Tensor& expected, const Tensor& a, const Tensor& b) {
  const Tensor x = a.to(DType::float64), y = b.to(DType::float64);
  double largest = 0;
  for (Index i = 0; i < c.dim(0); ++i)
    for (Index j = 0; j < c.dim(1); ++j) {
      double size = 2;
      for (Index p = 0; p < x.dim(1); ++p) size += std::abs(2 * x.ptr<double>()[i * x.dim(1) + p] * y.at({p, j}));
      largest = std::max(largest, std::abs(c.at({i, j}) - expected.at({i, j})) / size);
    }
  return largest / 1.2e-7;
}

}  // namespace

TEST_CASE("gemm: a quantized matrix gives the product of its numbers, on each level, in any algorithm") {
  on_each_level([] {
    for (const DType type : kQuantizedTypes)
      for (const auto& [out, in] : {std::pair<Index, Index>{37, 64}, {70, 960}, {1100, 96}}) {
        const Tensor w = random_blocks({out, in}, type, 1), numbers = w.to(DType::float32);
        for (const bool back : {false, true})
          for (const Index m : {1, 2, 3, 4, 5, 31, 33, 90, 600}) {
            if (m * out * in > test::thinned(Index{20000000}, Index{1000000})) continue;
            const Tensor a = normal({m, back ? out : in}, 2, DType::float32);
            const Tensor b = back ? w : w.t(), c = quantized_product(a, b);
            const Tensor expected = quantized_product(a, back ? numbers : numbers.t());
            CAPTURE(std::string(name_of(type)));
            CAPTURE(back);
            CAPTURE(m);
            CAPTURE(w.dim(0));
            const bool packed = m > 32 || (back && m > 4);
            if (packed)
              CHECK(same_bits(c, expected));
            else
              CHECK(error_between(c, expected, a, back ? numbers : numbers.t()) < 4);
          }
      }
  });
}

TEST_CASE("gemm: a quantized matrix is rounded to bfloat16 in such products, and widens rows of bfloat16 in others") {
  on_each_level([] {
    for (const DType type : kQuantizedTypes)
      for (const Index m : {1, 3, 8, 40, 100}) {
        const Tensor w = random_blocks({90, 352}, type, 3), numbers = w.to(DType::float32);
        const Tensor a = normal({m, 352}, 4, DType::float32), narrow = a.to(DType::bfloat16);
        CHECK(same_bits(quantized_product(narrow, w.t(), DType::bfloat16),
                        quantized_product(narrow, numbers.t(), DType::bfloat16)));
        CHECK(same_bits(quantized_product(narrow, w.t()), quantized_product(narrow.to(DType::float32), w.t())));
      }
  });
}

TEST_CASE("gemm: in a product of few rows by a quantized matrix, each row has the bits of that row alone") {
  on_each_level([] {
    for (const DType type : kQuantizedTypes)
      for (const auto& [out, in] : {std::pair<Index, Index>{37, 160}, {6, 1600}}) {
        const Tensor w = random_blocks({out, in}, type, 5), a = normal({32, in}, 6, DType::float32);
        const Tensor strided = normal({in, 32}, 7, DType::float32).t();
        for (const Tensor& rows : {a, strided})
          for (Index m = 2; m <= 32; m += test::thinned(1, 5)) {
            const Tensor c = quantized_product(rows.slice(0, 0, m), w.t());
            Index wrong = 0;
            for (Index i = 0; i < m; i += 1 + m / 8)
              wrong += !same_bits(c[i].contiguous(), quantized_product(rows.slice(0, i, i + 1), w.t())[0].contiguous());
            CHECK(wrong == 0);
          }
      }
  });
}

TEST_CASE("gemm: a quantized matrix gives the same bits on every level with fma, and at any number of threads") {
  std::map<std::string, Tensor> first;
  on_each_float_level([&] {
    if (!kernels::fuses(kernels::level())) return;
    for (const DType type : kQuantizedTypes)
      for (const Index m : {1, 3, 7, 32, 50}) {
        const Tensor w = random_blocks({700, 1024}, type, 7), a = normal({m, 1024}, 8, DType::float32);
        for (const int count : {1, 2, 5}) {
          set_threads(count);
          const Tensor c = quantized_product(a, w.t());
          const auto known = first.try_emplace(std::string(name_of(type)) + std::to_string(m), c).first;
          CHECK(same_bits(c, known->second));
        }
      }
  });
  set_threads(0);
}

TEST_CASE("gemm: a quantized matrix is packed for many products") {
  const Tensor w = random_blocks({96, 64}, DType::q4_1, 9), a = normal({5, 64}, 10, DType::float32);
  const Tensor numbers = w.to(DType::float32);
  Tensor c = Tensor::zeros({5, 96}), expected = Tensor::zeros({5, 96});
  PackedMatrix(matrix_in(w.t()), 64, 96, DType::float32).multiply({.m = 5, .a = matrix_in(a), .c = c.raw(), .ldc = 96});
  PackedMatrix(matrix_in(numbers.t()), 64, 96, DType::float32)
      .multiply({.m = 5, .a = matrix_in(a), .c = expected.raw(), .ldc = 96});
  CHECK(same_bits(c, expected));
}

TEST_CASE("gemm: a quantized matrix must be the right operand, have whole rows and be alone") {
  const Tensor w = random_blocks({64, 64}, DType::q8_0, 11), a = normal({64, 64}, 12, DType::float32);
  Tensor c = Tensor::zeros({64, 64});
  Gemm g{.m = 64, .n = 64, .k = 64, .a = matrix_in(w), .b = matrix_in(a), .c = c.raw(), .ldc = 64};
  CHECK(contains(error_of([&] { gemm(g); }), "gemm: a is q8_0 and b is float32"));
  g.a = matrix_in(a), g.b = matrix_in(w);
  g.b.row = 48;
  CHECK(contains(error_of([&] { gemm(g); }), "it must have whole rows of blocks, the same for the whole batch"));
  g.b = matrix_in(w), g.a.dtype = DType::float64;
  CHECK(contains(error_of([&] { gemm(g); }), "gemm: a is float64 and b is q8_0"));
}

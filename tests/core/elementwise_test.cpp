// The engine of elementwise kernels: strides, broadcasting, accumulation, and bits that do not depend on threads.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <heed/core/elementwise.hpp>
#include <heed/core/kernels/elementwise/ops.hpp>
#include <heed/core/parallel.hpp>
#include <vector>

#include "tests/core/levels.hpp"

using namespace heed;
using detail::elementwise;
using detail::kernel_type;
using detail::Operand;
using heed::test::on_each_float_level;

namespace {

// A deterministic pseudo-random number in [-1, 1) for index i.
double noise(Index i) {
  const double v = std::sin(12.9898 * static_cast<double>(i + 1)) * 43758.5453;
  return 2 * (v - std::floor(v)) - 1;
}

Tensor noisy(const Shape& shape, DType dtype, double scale = 4) {
  Tensor x = Tensor::empty(shape, DType::float64);
  for (Index i = 0; i < x.numel(); ++i) x.ptr<double>()[i] = std::floor(scale * noise(i) * 64) / 64;
  return x.to(dtype);
}

// Compares a - b with numbers that are read by the tensors' own indices.
void check_sub(const Tensor& a, const Tensor& b, const Shape& shape) {
  const DType dtype = a.dtype();
  const Tensor y = Tensor::empty(shape, dtype);
  elementwise(kernels::binary<"sub">().forward[kernel_type(dtype)], y, {a, b});
  const std::vector<double> got = y.to_vector<double>();
  const std::vector<double> p = a.expand(shape).to_vector<double>(), q = b.expand(shape).to_vector<double>();
  int wrong = 0;
  for (std::size_t i = 0; i < got.size(); ++i) wrong += got[i] != p[i] - q[i];
  CAPTURE(shape);
  CAPTURE(a.shape());
  CAPTURE(b.shape());
  CAPTURE(a.strides());
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("elementwise: inputs of any strides and broadcast") {
  on_each_float_level([] {
    for (const DType dtype : {DType::float32, DType::float64, DType::int32}) {
      const Tensor m = noisy({37, 41}, dtype);
      check_sub(m, m, {37, 41});
      check_sub(m, noisy({41}, dtype), {37, 41});
      check_sub(noisy({37, 1}, dtype), m, {37, 41});
      check_sub(noisy({37, 1}, dtype), noisy({1, 41}, dtype), {37, 41});
      check_sub(m.t(), noisy({41, 37}, dtype), {41, 37});
      check_sub(m.t(), noisy({1, 37}, dtype), {41, 37});
      check_sub(m.slice(1, 3, 41, 2), m.slice(1, 0, 38, 2), {37, 19});
      check_sub(m.slice(0, 30, 37), noisy({}, dtype), {7, 41});
      check_sub(noisy({}, dtype), noisy({}, dtype), {});
      check_sub(noisy({}, dtype), noisy({1, 1}, dtype), {1, 1});
      const Tensor cube = noisy({5, 3, 7, 2}, dtype);
      check_sub(cube, noisy({3, 1, 2}, dtype), {5, 3, 7, 2});
      check_sub(cube.permute({3, 1, 0, 2}), noisy({5, 1}, dtype), {2, 3, 5, 7});
      check_sub(cube.expand({4, 5, 3, 7, 2}), noisy({4, 1, 1, 1, 1}, dtype), {4, 5, 3, 7, 2});
      check_sub(Tensor::empty({0, 3}, dtype), noisy({3}, dtype), {0, 3});
    }
  });
}

TEST_CASE("elementwise: an output of any strides, written or added to") {
  for (const bool accumulate : {false, true}) {
    for (const Shape& shape : {Shape{6, 50}, Shape{50, 6}, Shape{700, 3}}) {
      const Tensor a = noisy(shape, DType::float32), b = noisy({shape[1]}, DType::float32);
      Tensor base = Tensor::full({shape[1], 2 * shape[0]}, 3);
      const Tensor out = base.slice(1, 0, 2 * shape[0], 2).t();
      elementwise(kernels::binary<"mul">().forward[0], out, {a, b}, {0, 0, accumulate});
      int wrong = 0;
      for (Index i = 0; i < shape[0]; ++i)
        for (Index j = 0; j < shape[1]; ++j) {
          const double expected = a.at({i, j}) * b.at({j}) + (accumulate ? 3 : 0);
          wrong += out.at({i, j}) != static_cast<float>(expected);
          wrong += base.at({j, 2 * i + 1}) != 3;
        }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("elementwise: large transposed inputs") {
  for (const DType dtype : {DType::float32, DType::float64, DType::int32}) {
    const Tensor m = noisy({203, 131}, dtype), cube = noisy({9, 70, 41}, dtype);
    check_sub(m.t(), noisy({131, 203}, dtype), {131, 203});
    check_sub(noisy({131, 203}, dtype), m.t(), {131, 203});
    check_sub(m.t(), m.t(), {131, 203});
    check_sub(cube.permute({2, 0, 1}), noisy({9, 1}, dtype), {41, 9, 70});
    check_sub(cube.permute({0, 2, 1}), cube.permute({0, 2, 1}), {9, 41, 70});
    check_sub(cube.permute({2, 1, 0}), noisy({70, 9}, dtype), {41, 70, 9});
  }
}

TEST_CASE("copies of transposed tensors, dense or converted, and sums into strided ones") {
  for (const Shape& shape : {Shape{1, 1, 1}, Shape{3, 40, 70}, Shape{2, 8, 8}, Shape{5, 33, 31}, Shape{70, 9, 100}}) {
    const Tensor x = noisy(shape, DType::float32);
    for (const std::vector<int>& axes : {std::vector<int>{0, 2, 1}, {2, 1, 0}, {1, 2, 0}, {2, 0, 1}, {1, 0, 2}}) {
      const Tensor v = x.permute(axes), dense = v.dense(), wide = v.to(DType::float64);
      Tensor sum = Tensor::ones(shape).permute(axes), other = Tensor::ones(v.shape());
      detail::add_values(sum, v);
      detail::add_values(other, v);
      int wrong = 0;
      for (Index i = 0; i < v.dim(0); ++i)
        for (Index j = 0; j < v.dim(1); ++j)
          for (Index k = 0; k < v.dim(2); ++k) {
            const double expected = v.at({i, j, k});
            wrong += dense.at({i, j, k}) != expected || wide.at({i, j, k}) != expected;
            wrong += sum.at({i, j, k}) != expected + 1 || other.at({i, j, k}) != expected + 1;
          }
      CAPTURE(shape);
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("elementwise: the same bits at any number of threads") {
  const Tensor x = noisy({1000, 333}, DType::float32), w = noisy({333}, DType::float32);
  std::vector<std::vector<float>> results;
  for (const int n : {1, 2, 3, 8}) {
    set_threads(n);
    threads_seen();
    const Tensor y = Tensor::empty({1000, 333}), z = Tensor::empty({1000, 333});
    elementwise(kernels::binary<"div">().forward[0], y, {x, w});
    elementwise(kernels::unary<"gelu">().forward[0], z, {y});
    results.push_back(z.to_vector<float>());
  }
  set_threads(0);
  for (const auto& r : results) {
    int differ = 0;
    for (std::size_t i = 0; i < r.size(); ++i) differ += std::memcmp(&r[i], &results[0][i], 4) != 0;
    CHECK(differ == 0);
  }
}

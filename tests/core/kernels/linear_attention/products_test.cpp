// Matrix products within a chunk of linear attention against plain loops, at sizes around those of tiles and vectors.
#include <doctest/doctest.h>

#include <cmath>
#include <heed/core/memory.hpp>
#include <limits>

#include "tests/core/levels.hpp"
#include "tests/kernels/product_sums.hpp"
#include "tests/support.hpp"

using namespace heed;
using heed::test::on_each_float_level;

namespace {

constexpr long kStride = 80, kRows = 66;  // the size of all matrices; tests use their first rows and columns

template <class T>
const kernels::ProductSum<T>& product_sum() {
  if constexpr (sizeof(T) == 4)
    return kernels::product_sums().f32;
  else
    return kernels::product_sums().f64;
}

template <class T>
struct Matrix {
  Scratch<T> data{kRows * kStride};
  explicit Matrix(unsigned seed = 0) {
    for (long i = 0; i < kRows * kStride; ++i) {
      seed = seed * 1664525u + 1013904223u;
      data.data()[i] = static_cast<T>(static_cast<double>(seed >> 8) / (1 << 23) - 1);
    }
  }
  T* p() { return data.data(); }
  double at(long i, long j) { return static_cast<double>(data.data()[i * kStride + j]); }
  void fill(T x) { std::fill_n(data.data(), kRows * kStride, x); }
};

// off(): |got - sum| in units of terms * (1 + sum of |terms|) * epsilon.
template <class T>
struct Sum {
  double sum = 0, size = 1;
  long terms = 2;
  void add(double x) { sum += x, size += std::abs(x), ++terms; }
  double off(double got) const {
    const double e = std::abs(got - sum) / (static_cast<double>(terms) * size * std::numeric_limits<T>::epsilon());
    return std::isnan(e) ? std::numeric_limits<double>::infinity() : e;
  }
};

// The triangle that lower() writes to memory full of NaN is an operand of the next product.
template <class T>
double worst(char part, long n, long columns, long depth) {
  const auto& f = product_sum<T>();
  Matrix<T> x(1), y(2), u(3), t, scratch, z(5), c;
  t.fill(std::numeric_limits<T>::quiet_NaN()), c.fill(T(7));
  double max_error = 0;
  f.lower(n, depth, x.p(), y.p(), part == 'u' ? u.p() : nullptr, t.p(), kStride, scratch.p());
  for (long i = 0; i < n; ++i)
    for (long j = 0; j <= i; ++j) {
      Sum<T> s;
      for (long p = 0; p < depth; ++p) s.add(x.at(i, p) * y.at(j, p));
      if (part == 'u') s.add(u.at(0, i));
      max_error = std::max(max_error, s.off(t.at(i, j)));
    }
  f.with_triangle(part, n, columns, depth, x.p(), y.p(), t.p(), z.p(), c.p(), kStride);
  for (long i = 0; i < n; ++i)
    for (long j = 0; j < columns; ++j) {
      Sum<T> s;
      for (long p = 0; p < depth; ++p) s.add(x.at(i, p) * y.at(p, j));
      for (long p = 0; p < n; ++p) {
        if (part == 'l' && p <= i) s.add(t.at(i, p) * z.at(p, j));
        if (part == 'u' && p >= i) s.add(t.at(p, i) * z.at(p, j));
      }
      max_error = std::max(max_error, s.off(c.at(i, j)));
    }
  for (long j = 0; j < columns; ++j)
    max_error = std::max(max_error, c.at(n, j) == 7 ? 0. : 1e9);  // rows after n are not written
  c.fill(T(7));
  f.add(n, depth, columns, x.p(), y.p(), c.p(), kStride);
  for (long i = 0; i < depth; ++i)
    for (long j = 0; j < columns; ++j) {
      Sum<T> s;
      s.add(7);
      for (long p = 0; p < n; ++p) s.add(x.at(p, i) * y.at(p, j));
      max_error = std::max(max_error, s.off(c.at(i, j)));
    }
  return max_error;
}

template <class T>
void check_sums() {
  int number = 0;
  for (const long n : {1, 2, 3, 5, 6, 7, 8, 9, 13, 15, 16, 17, 24, 31, 32, 33, 63, 64})
    for (const long columns : {1, 3, 4, 5, 8, 9, 16, 17, 31, 32, 33, 64})
      for (const long depth : {1, 2, 7, 8, 9, 16, 17, 33, 64}) {
        if (!test::is_taken(number++, 13)) continue;
        if (n > 33 && columns > 17 && depth > 17 && n + columns + depth != 192) continue;
        for (const char part : {'-', 'l', 'u'}) {
          const double w = worst<T>(part, n, columns, depth);
          if (w < 1) continue;
          CAPTURE(n);
          CAPTURE(columns);
          CAPTURE(depth);
          CAPTURE(part);
          CHECK(w < 1);
        }
      }
}

}  // namespace

TEST_CASE("linear attention's float32 products agree with float64 loops") { on_each_float_level(check_sums<float>); }
TEST_CASE("linear attention's float64 products agree with plain loops") { on_each_float_level(check_sums<double>); }

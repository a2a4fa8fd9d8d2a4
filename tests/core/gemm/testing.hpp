// Shared by the tests of products: operands in every layout and dtype with their values in float64, and the comparison
// with plain loops.
#pragma once
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <heed/core/gemm/gemm.hpp>
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <vector>

namespace heed::test {

enum class Layout { rows, columns, strided, reversed };
inline constexpr Layout kLayouts[] = {Layout::rows, Layout::columns, Layout::strided, Layout::reversed};

// A matrix of one dtype with gaps around it, and its values in float64.
struct GemmOperand {
  std::vector<char> bytes;
  std::vector<double> exact;
  MatrixIn in;
  Index at(Index i, Index j) const { return offset + i * in.row + j * in.column; }
  double operator()(Index i, Index j) const { return exact[static_cast<std::size_t>(at(i, j))]; }
  Index offset = 0;
  Layout layout = Layout::rows;
};

inline double pseudo(std::uint32_t& state) {
  state = state * 1664525u + 1013904223u;
  return static_cast<double>(state >> 8) / (1 << 23) - 1;
}

inline GemmOperand operand(Index rows, Index columns, Layout layout, DType type, std::uint32_t seed, Index copies = 1) {
  GemmOperand x;
  x.layout = layout;
  const auto set = [&](Index row, Index column, Index offset) {
    x.in.row = row;
    x.in.column = column;
    x.offset = offset;
  };
  // Rows with a gap, columns with an odd gap, every third element, and reversed.
  Index size = 0;
  if (layout == Layout::rows) set(columns + 2, 1, 0), size = rows * (columns + 2);
  if (layout == Layout::columns) set(1, rows + 1, 0), size = columns * (rows + 1);
  if (layout == Layout::strided) set(3 * columns + 1, 3, 0), size = rows * (3 * columns + 1);
  if (layout == Layout::reversed) set(-columns, -1, std::max<Index>(rows * columns - 1, 0)), size = rows * columns;
  size *= copies;
  x.exact.resize(static_cast<std::size_t>(size));
  x.bytes.resize(x.exact.size() * size_of(type) + 1);
  for (std::size_t i = 0; i < x.exact.size(); ++i) {
    const double v = pseudo(seed);
    if (type == DType::float64) x.exact[i] = v, std::memcpy(&x.bytes[i * 8], &v, 8);
    if (type == DType::float32) {
      const float f = static_cast<float>(v);
      x.exact[i] = f, std::memcpy(&x.bytes[i * 4], &f, 4);
    }
    if (type == DType::bfloat16) {
      const bfloat16 h(static_cast<float>(v));
      x.exact[i] = static_cast<float>(h), std::memcpy(&x.bytes[i * 2], &h, 2);
    }
  }
  x.in.dtype = type;
  x.in.data = x.bytes.data() + x.offset * static_cast<Index>(size_of(type));
  return x;
}

// Products by plain float64 loops, computed once for all levels and epilogues. Operands of the same size, layout and
// dtype must have the same seeds.
class PlainProducts {
 public:
  // For each element, in row-major order: the sum of a b and the sum of |a||b|.
  struct Sums {
    std::vector<double> value, size;
  };

  const Sums& of(const GemmOperand& a, const GemmOperand& b, Index m, Index n, Index k) {
    const auto [place, fresh] = known_.try_emplace({m, n, k, a.layout, b.layout, a.in.dtype, b.in.dtype});
    Sums& sums = place->second;
    for (Index i = 0; fresh && i < m; ++i)
      for (Index j = 0; j < n; ++j) {
        double sum = 0, size = 0;
        for (Index p = 0; p < k; ++p) sum += a(i, p) * b(p, j), size += std::abs(a(i, p) * b(p, j));
        sums.value.push_back(sum), sums.size.push_back(size);
      }
    return sums;
  }

 private:
  std::map<std::tuple<Index, Index, Index, Layout, Layout, DType, DType>, Sums> known_;
};

// ---- The comparison ----

// The layouts and dtypes of the operands, and the epilogue.
struct GemmOptions {
  Layout a = Layout::rows, b = Layout::rows;
  DType a_type = DType::float32, b_type = DType::float32;
  bool accumulate = false, bias = false;
  double alpha = 1;
};

// Returns the largest error of gemm() compared with the plain products, divided by eps (2 + sum |a||b|).
template <class T>
double worst_of(Index m, Index n, Index k, const GemmOptions& o, PlainProducts& plain) {
  const GemmOperand a = operand(m, k, o.a, o.a_type, 1), b = operand(k, n, o.b, o.b_type, 2);
  const Index ldc = n + 3;
  const auto random = [](Index count, std::uint32_t seed) {
    std::vector<T> x(static_cast<std::size_t>(count));
    for (T& v : x) v = static_cast<T>(pseudo(seed));
    return x;
  };
  std::vector<T> c = random(m * ldc, 3);
  const std::vector<T> c_old = c, bias = random(n, 4);
  Gemm g{.m = m, .n = n, .k = k, .a = a.in, .b = b.in, .c = c.data(), .ldc = ldc, .alpha = o.alpha};
  g.accumulate = o.accumulate;
  if (o.bias) g.bias = bias.data();
  gemm(g);
  const PlainProducts::Sums& sums = plain.of(a, b, m, n, k);
  double worst = 0;
  for (Index i = 0; i < m; ++i)
    for (Index j = 0; j < ldc; ++j) {
      const auto at = static_cast<std::size_t>(i * ldc + j);
      if (j >= n) {
        worst = std::max(worst, c[at] == c_old[at] ? 0.0 : 1e30);  // gemm() must not write to the gap between rows
        continue;
      }
      const auto product = static_cast<std::size_t>(i * n + j);
      const double size = 2 + sums.size[product];
      const double expected = o.alpha * sums.value[product] + (o.accumulate ? c_old[at] : T(0)) +
                              (o.bias ? bias[static_cast<std::size_t>(j)] : T(0));
      worst = std::max(worst, std::abs(c[at] - expected) / size);
      if (std::isnan(c[at])) worst = 1e30;
    }
  return worst / std::numeric_limits<T>::epsilon();
}

// Summing in blocks and vectors keeps the error of long sums low.
inline constexpr double kBound = 4;

template <class T>
void expect(Index m, Index n, Index k, const GemmOptions& o, PlainProducts& plain) {
  const double worst = worst_of<T>(m, n, k, o, plain);
  if (worst < kBound) return;
  CAPTURE(m);
  CAPTURE(n);
  CAPTURE(k);
  CAPTURE(static_cast<int>(o.a));
  CAPTURE(static_cast<int>(o.b));
  CAPTURE(std::string(name_of(o.a_type)));
  CAPTURE(std::string(name_of(o.b_type)));
  CAPTURE(worst);
  CHECK(worst < kBound);
}

inline void expect_of(DType a_type, Index m, Index n, Index k, const GemmOptions& o, PlainProducts& plain) {
  a_type == DType::float64 ? expect<double>(m, n, k, o, plain) : expect<float>(m, n, k, o, plain);
}

// Calls check(dtype of a, dtype of b).
template <class F>
void with_types(const F& check) {
  check(DType::float32, DType::float32);
  check(DType::float64, DType::float64);
  check(DType::bfloat16, DType::bfloat16);
  check(DType::bfloat16, DType::float32);
}

}  // namespace heed::test

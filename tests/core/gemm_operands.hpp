// Operands of matrix products in every layout and type, beside their values in float64.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstring>
#include <heed/core/detail/gemm.hpp>
#include <map>
#include <tuple>
#include <vector>

namespace heed::test {

enum class Layout { rows, columns, strided, reversed };
inline constexpr Layout kLayouts[] = {Layout::rows, Layout::columns, Layout::strided, Layout::reversed};

// Values of one dtype with room around the matrix, and their float64 copies.
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
  // Whole rows with a gap, whole columns with an odd gap, every third element, and backwards.
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

// Products by plain float64 loops, made once for all instruction sets and epilogues; of operands of the same seeds.
class PlainProducts {
 public:
  // Of each element, row by row: the sum of a b and that of |a||b|.
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

}  // namespace heed::test

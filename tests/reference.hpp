// Plain references of ops over axes: the elements of each result, gathered one by one in float64.
#pragma once
#include <algorithm>
#include <heed/core/tensor.hpp>
#include <vector>

namespace heed::test {

// The elements reduced to each element of the result, in row-major order. The result has x's shape with size 1 for each
// axis in `axes`; if `axes` is empty, for all axes.
inline std::vector<std::vector<double>> groups_of(const Tensor& x, const std::vector<int>& axes) {
  Shape kept = x.shape();
  for (int a = 0; a < x.rank(); ++a) {
    bool reduced = axes.empty();
    for (int b : axes) reduced = reduced || (b + x.rank()) % x.rank() == a;
    if (reduced) kept[a] = 1;
  }
  std::vector<std::vector<double>> groups(static_cast<std::size_t>(kept.numel()));
  const std::vector<double> values = x.to_vector<double>();
  for (std::size_t i = 0; i < values.size(); ++i) {
    Index rest = static_cast<Index>(i), place = 0, step = 1;
    for (int a = x.rank() - 1; a >= 0; --a) {
      if (kept[a] != 1) place += rest % x.shape()[a] * step;
      step *= kept[a];
      rest /= x.shape()[a];
    }
    groups[static_cast<std::size_t>(place)].push_back(values[i]);
  }
  return groups;
}

// f of each group, in the shape of `like`.
template <class F>
Tensor reduced(const Tensor& x, const std::vector<int>& axes, const Tensor& like, F f) {
  std::vector<double> y;
  for (const auto& g : groups_of(x, axes)) y.push_back(f(g));
  return Tensor::from(y, like.shape());
}

// f of each line along an axis. f takes and returns a whole line.
template <class F>
Tensor along(const Tensor& x, int axis, F f) {
  const Tensor t = x.detach().to(DType::float64).transpose(axis, -1).dense();
  Tensor y = Tensor::empty(t.shape(), DType::float64);
  const Index n = t.dim(-1);
  for (Index r = 0; r < (n == 0 ? 0 : t.numel() / n); ++r) {
    const std::vector<double> line(t.ptr<double>() + r * n, t.ptr<double>() + (r + 1) * n);
    const std::vector<double> result = f(line);
    std::copy(result.begin(), result.end(), y.ptr<double>() + r * n);
  }
  return y.transpose(axis, -1).dense();
}

}  // namespace heed::test

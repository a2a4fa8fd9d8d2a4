// Bounds of the effect of bfloat16 rounding on attention, for every element of its results, from plain loops in
// float64.
#pragma once
#include "tests/autograd/attention_reference.hpp"

namespace heed::test {

inline AttentionData rounded(const AttentionData& x) {
  const auto round = [](const Tensor& y) { return y.to(DType::bfloat16).to(DType::float64); };
  return {round(x.q), round(x.k), round(x.v), round(x.dout)};
}

inline constexpr double kHalfUnit = 0x1p-8;  // max relative error of rounding to bfloat16
inline constexpr double kFloatSums = 1e-5;   // relative error of sums in float32

// Zeros in float64 with the shapes of the results, to which bounds are added.
inline AttentionResult no_bounds(const AttentionResult& r) {
  const auto zeros = [](const Tensor& like) { return Tensor::zeros(like.shape(), DType::float64); };
  return {zeros(r.out), zeros(r.dq), zeros(r.dk), zeros(r.dv), zeros(r.dbias), {}};
}

inline double* row_of(const Tensor& t, Index row) { return t.ptr<double>() + row * t.dim(-1); }

// Calls f(row, head, keys) for each query: its row of q, its head of the B * H heads, and the first row of k and v of
// its key/value head.
inline void each_query(const AttentionData& x, const std::function<void(Index row, Index head, Index keys)>& f) {
  const Index B = x.q.dim(0), H = x.q.dim(1), T = x.q.dim(2), Hk = x.k.dim(1), S = x.k.dim(2);
  for (Index row = 0; row < B * H * T; ++row) {
    const Index head = row / T;
    f(row, head, (head / H * Hk + head % H / (H / Hk)) * S);
  }
}

// Bounds of the errors, element by element, if each operand of a product and each result is rounded to bfloat16 once
// and sums are computed in float32.
//   out  = sum p v                 dv = sum p do
//   ds   = p (dp - delta), where delta = do . out has the error of out
//   dq   = scale sum ds k          dk = scale sum ds q
inline AttentionResult bounds_of(const AttentionData& x, const AttentionResult& r, double scale, double keep) {
  const Index D = x.q.dim(3), S = x.k.dim(2), V = x.v.dim(3);
  constexpr double unit = kHalfUnit + kFloatSums;
  AttentionResult y = no_bounds(r);
  each_query(x, [&](Index row, Index, Index keys) {
    const double *p = row_of(r.weights, row), *ds = row_of(r.dscores, row), *dout = row_of(x.dout, row);
    double delta = 0;
    for (Index c = 0; c < V; ++c) {
      double sum = std::fabs(row_of(r.out, row)[c]);
      for (Index j = 0; j < S; ++j) sum += keep * p[j] * std::fabs(row_of(x.v, keys + j)[c]);
      row_of(y.out, row)[c] = unit * sum;
      delta += std::fabs(dout[c]) * unit * sum;
    }
    for (Index j = 0; j < S; ++j) {
      for (Index c = 0; c < V; ++c) row_of(y.dv, keys + j)[c] += unit * keep * p[j] * std::fabs(dout[c]);
      const double off = unit * std::fabs(ds[j]) + p[j] * (delta + kFloatSums);
      row_of(y.dbias, row)[j] = off;
      for (Index c = 0; c < D; ++c) {
        row_of(y.dq, row)[c] += scale * off * std::fabs(row_of(x.k, keys + j)[c]);
        row_of(y.dk, keys + j)[c] += scale * off * std::fabs(row_of(x.q, row)[c]);
      }
    }
  });
  return y;
}

// The largest ratio of an element's error to its bound.
inline double share(const Tensor& x, const Tensor& expected, const Tensor& bound) {
  const std::vector<double> a = x.to(DType::float64).to_vector<double>(), b = expected.to_vector<double>(),
                            c = bound.to_vector<double>();
  REQUIRE(a.size() == b.size());
  double max_error = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double e = std::fabs(a[i] - b[i]) / (c[i] + 1e-6);
    max_error = std::isnan(e) ? kInf : std::max(max_error, e);
  }
  return max_error;
}

}  // namespace heed::test

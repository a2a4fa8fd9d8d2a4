// What roundings to bfloat16 may do to attention: bounds for every element of its results, from plain loops in float64.
#pragma once
#include "tests/autograd/attention_reference.hpp"

namespace heed::test {

inline AttentionData rounded(const AttentionData& x) {
  const auto round = [](const Tensor& y) { return y.to(DType::bfloat16).to(DType::float64); };
  return {round(x.q), round(x.k), round(x.v), round(x.dout)};
}

// How far results may be from the exact ones, element by element, where each operand of a product is off by one
// rounding of bfloat16 (2^-8 is twice that), the result by another, and what is summed in float32 by a little.
//   out  = sum p v                 dv = sum p do
//   ds   = p (dp - delta), where delta = do . out has what out is off by
//   dq   = scale sum ds k          dk = scale sum ds q
inline AttentionResult bounds_of(const AttentionData& x, const AttentionResult& r, double scale, double keep) {
  constexpr double unit = 0x1p-8, sums = 1e-5;
  const Index B = x.q.dim(0), H = x.q.dim(1), T = x.q.dim(2), D = x.q.dim(3), Hk = x.k.dim(1), S = x.k.dim(2),
              V = x.v.dim(3);
  const auto zeros = [](const Tensor& like) { return Tensor::zeros(like.shape(), DType::float64); };
  AttentionResult y{zeros(r.out), zeros(r.dq), zeros(r.dk), zeros(r.dv), zeros(r.dbias), {}};
  const auto at = [](const Tensor& t, Index row, Index width) { return t.ptr<double>() + row * width; };
  for (Index row = 0; row < B * H * T; ++row) {
    const Index b = row / (H * T), h = row / T % H, keys = (b * Hk + h / (H / Hk)) * S;
    const double *p = at(r.weights, row, S), *ds = at(r.dscores, row, S), *dout = at(x.dout, row, V);
    double delta = 0;
    for (Index c = 0; c < V; ++c) {
      double sum = std::fabs(at(r.out, row, V)[c]);
      for (Index j = 0; j < S; ++j) sum += keep * p[j] * std::fabs(at(x.v, keys + j, V)[c]);
      at(y.out, row, V)[c] = (unit + sums) * sum;
      delta += std::fabs(dout[c]) * (unit + sums) * sum;
    }
    for (Index j = 0; j < S; ++j) {
      for (Index c = 0; c < V; ++c) at(y.dv, keys + j, V)[c] += (unit + sums) * keep * p[j] * std::fabs(dout[c]);
      const double off = (unit + sums) * std::fabs(ds[j]) + p[j] * (delta + sums);
      at(y.dbias, row, S)[j] = off;
      for (Index c = 0; c < D; ++c) {
        at(y.dq, row, D)[c] += scale * off * std::fabs(at(x.k, keys + j, D)[c]);
        at(y.dk, keys + j, D)[c] += scale * off * std::fabs(at(x.q, row, D)[c]);
      }
    }
  }
  return y;
}

// The largest share of its bound that an element is off by.
inline double share(const Tensor& x, const Tensor& wanted, const Tensor& bound) {
  const std::vector<double> a = x.to(DType::float64).to_vector<double>(), b = wanted.to_vector<double>(),
                            c = bound.to_vector<double>();
  REQUIRE(a.size() == b.size());
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double e = std::fabs(a[i] - b[i]) / (c[i] + 1e-6);
    most = std::isnan(e) ? kInf : std::max(most, e);
  }
  return most;
}

}  // namespace heed::test

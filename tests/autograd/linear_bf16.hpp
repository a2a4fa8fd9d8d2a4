// Linear attention of bfloat16 q, k and v, and what its roundings may do: bounds for every element of its results.
#pragma once
#include <cmath>

#include "tests/autograd/attention_bf16.hpp"
#include "tests/autograd/linear_reference.hpp"

namespace heed::test {

inline Tensor half(const Tensor& x) { return x.to(DType::bfloat16); }

// How far results may be from the exact ones, element by element: the result by one rounding of bfloat16, gradients of
// q and k by what that does to do . out, and all by what is summed in float32.
//   dq = f'(q) sum_j da_j f(k_j), where da = (do . v - do . out) / d         dv = sum p do
inline AttentionResult linear_bounds(const AttentionData& x, const LinearCase& how, const AttentionResult& r) {
  constexpr double unit = 0x1p-8, sums = 1e-5;
  const FeatureMap map = how.features.feature_map;
  const Index B = x.q.dim(0), H = x.q.dim(1), T = x.q.dim(2), D = x.q.dim(3), Hk = x.k.dim(1), S = x.k.dim(2),
              V = x.v.dim(3);
  const auto zeros = [](const Tensor& like) { return Tensor::zeros(like.shape(), DType::float64); };
  AttentionResult y{zeros(r.out), zeros(r.dq), zeros(r.dk), zeros(r.dv), zeros(r.dbias), {}};
  const auto at = [](const Tensor& t, Index row, Index width) { return t.ptr<double>() + row * width; };
  for (Index row = 0; row < B * H * T; ++row) {
    const Index b = row / (H * T), h = row / T % H, keys = (b * Hk + h / (H / Hk)) * S;
    const double *p = at(r.weights, row, S), *dout = at(x.dout, row, V), *q = at(x.q, row, D);
    double delta = 0;
    for (Index c = 0; c < V; ++c) {
      const double size = std::fabs(at(r.out, row, V)[c]);
      double all = 0;
      for (Index j = 0; j < S; ++j) all += p[j] * std::fabs(at(x.v, keys + j, V)[c]);
      at(y.out, row, V)[c] = unit * size + sums * all;
      delta += std::fabs(dout[c]) * (unit * size + sums * all);
    }
    for (Index j = 0; j < S; ++j) {
      if (p[j] == 0) continue;
      const double* k = at(x.k, keys + j, D);
      double own = delta;  // what do . v - do . out is off by
      for (Index c = 0; c < V; ++c) {
        at(y.dv, keys + j, V)[c] += sums * p[j] * std::fabs(dout[c]);
        own += sums * std::fabs(dout[c] * at(x.v, keys + j, V)[c]);
      }
      at(y.dbias, b * H + h, S)[j] += p[j] * own;
      const double over_d = p[j] / feature_product(map, q, k, D);  // and the factor of a key's bias
      for (Index c = 0; c < D; ++c) {
        at(y.dq, row, D)[c] += over_d * own * product_slope(map, q, k, D, c);
        at(y.dk, keys + j, D)[c] += over_d * own * product_slope(map, k, q, D, c);
      }
    }
  }
  return y;
}

inline AttentionResult run_half(const AttentionData& x, LinearCase o) {
  Tape tape;
  const Tensor q = tape.watch(half(x.q)), k = tape.watch(half(x.k)), v = tape.watch(half(x.v));
  if (o.call.bias.defined()) o.call.bias = tape.watch(o.call.bias.to(DType::float32));
  const Tensor y = linear_attention(q, k, v, o.call, o.features);
  CHECK(tape.steps() == 1);  // no float32 copies on the way
  tape.backward(y, x.dout.to(DType::float32));
  AttentionResult r;
  r.out = y.detach(), r.dq = tape.grad(q), r.dk = tape.grad(k), r.dv = tape.grad(v);
  if (o.call.bias.defined()) r.dbias = tape.grad(o.call.bias);
  return r;
}

}  // namespace heed::test

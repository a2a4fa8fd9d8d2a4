// Bounds of the effect of bfloat16 rounding on linear attention, for every element of its results.
#pragma once
#include <cmath>

#include "tests/autograd/attention_bf16.hpp"
#include "tests/autograd/linear_reference.hpp"

namespace heed::test {

inline Tensor half(const Tensor& x) { return x.to(DType::bfloat16); }

// Bounds of the errors, element by element: one bfloat16 rounding of the result, its effect on do . out for gradients
// of q and k, and float32 sums for all.
//   dq = f'(q) sum_j da_j f(k_j), where da = (do . v - do . out) / d         dv = sum p do
inline AttentionResult linear_bounds(const AttentionData& x, const LinearCase& how, const AttentionResult& r) {
  const FeatureMap map = how.features.feature_map;
  const Index D = x.q.dim(3), S = x.k.dim(2), V = x.v.dim(3);
  AttentionResult y = no_bounds(r);
  const NaiveFeatures fq(how.features, x.q), fk(how.features, x.k);
  each_query(x, [&](Index row, Index head, Index keys) {
    const double *p = row_of(r.weights, row), *dout = row_of(x.dout, row), *q = row_of(fq.values, row);
    double delta = 0;
    for (Index c = 0; c < V; ++c) {
      const double size = std::fabs(row_of(r.out, row)[c]);
      double all = 0;
      for (Index j = 0; j < S; ++j) all += p[j] * std::fabs(row_of(x.v, keys + j)[c]);
      row_of(y.out, row)[c] = kHalfUnit * size + kFloatSums * all;
      delta += std::fabs(dout[c]) * (kHalfUnit * size + kFloatSums * all);
    }
    for (Index j = 0; j < S; ++j) {
      if (p[j] == 0) continue;
      const double* k = row_of(fk.values, keys + j);
      const double product = dot(q, k, D);
      double own = delta;  // bound of the error of do . v - do . out
      for (Index c = 0; c < V; ++c) {
        row_of(y.dv, keys + j)[c] += kFloatSums * p[j] * std::fabs(dout[c]);
        own += kFloatSums * std::fabs(dout[c] * row_of(x.v, keys + j)[c]);
      }
      row_of(y.dbias, head)[j] += p[j] * own;
      // p / f(q).f(k), which includes the factor of the key's bias. For poly2, times 2 for the derivative of the
      // square.
      const double over_d = p[j] * own * (map == FeatureMap::poly2 ? 2 : 1) / product;
      for (Index c = 0; c < D; ++c) {
        row_of(y.dq, row)[c] += over_d * k[c] * row_of(fq.slopes, row)[c];
        row_of(y.dk, keys + j)[c] += over_d * q[c] * row_of(fk.slopes, keys + j)[c];
      }
    }
  });
  return y;
}

inline AttentionResult run_half(const AttentionData& x, LinearCase o) {
  Tape tape;
  const Tensor q = tape.watch(half(x.q)), k = tape.watch(half(x.k)), v = tape.watch(half(x.v));
  if (o.call.bias.defined()) o.call.bias = tape.watch(o.call.bias.to(DType::float32));
  const Tensor y = linear_attention(q, k, v, o.call, o.features);
  CHECK(tape.steps() == 1);  // no float32 copies
  tape.backward(y, x.dout.to(DType::float32));
  AttentionResult r;
  r.out = y.detach(), r.dq = tape.grad(q), r.dk = tape.grad(k), r.dv = tape.grad(v);
  if (o.call.bias.defined()) r.dbias = tape.grad(o.call.bias);
  return r;
}

}  // namespace heed::test

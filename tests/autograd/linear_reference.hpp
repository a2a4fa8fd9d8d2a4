// Linear attention and its gradients term by term, in plain loops over all pairs.
#pragma once
#include <cmath>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/linear_attention.hpp>
#include <heed/autograd/shape_ops.hpp>

#include "tests/autograd/attention_reference.hpp"

namespace heed::test {

inline constexpr FeatureMap kMaps[] = {FeatureMap::elu,      FeatureMap::relu, FeatureMap::softplus,
                                       FeatureMap::identity, FeatureMap::exp,  FeatureMap::poly2};

inline double feature(FeatureMap map, double x, double alpha = 1) {
  switch (map) {
    case FeatureMap::elu: return x < 0 ? alpha * std::exp(x) + (1 - alpha) : x + 1;
    case FeatureMap::relu: return std::max(x, 0.0);
    case FeatureMap::softplus: return std::log1p(std::exp(-std::fabs(x))) + std::max(x, 0.0);
    case FeatureMap::exp: return std::exp(x);
    default: return x;
  }
}
inline double slope(FeatureMap map, double x, double alpha = 1) {
  switch (map) {
    case FeatureMap::elu: return x < 0 ? alpha * std::exp(x) : 1;
    case FeatureMap::relu: return x > 0 ? 1 : 0;
    case FeatureMap::softplus: return 1 / (1 + std::exp(-x));
    case FeatureMap::exp: return std::exp(x);
    default: return 1;
  }
}

// The features of x and their derivatives, element by element. For poly2 they are x; the product of q and k is squared.
struct NaiveFeatures {
  Tensor values, slopes;
  NaiveFeatures(const LinearFeatures& f, const Tensor& x) : values(x.dense().clone()), slopes(x.dense().clone()) {
    for (Index i = 0; i < x.numel(); ++i) {
      double &value = values.ptr<double>()[i], &by = slopes.ptr<double>()[i];
      by = slope(f.feature_map, value, f.alpha), value = feature(f.feature_map, value, f.alpha);
    }
  }
};
inline double dot(const double* a, const double* b, Index width) {
  double sum = 0;
  for (Index c = 0; c < width; ++c) sum += a[c] * b[c];
  return sum;
}

struct LinearCase {
  AttentionCall call = {};
  LinearFeatures features = {};
};

// Term by term: o_i = sum_j w_ij v_j, w_ij = a_ij / (sum_j a_ij + eps), a_ij = exp(b_j) f(q_i) . f(k_j).
inline AttentionResult naive_linear(const AttentionData& x, const LinearCase& how) {
  const AttentionCall& o = how.call;
  const FeatureMap map = how.features.feature_map;
  const Index B = x.q.dim(0), H = x.q.dim(1), T = x.q.dim(2), D = x.q.dim(3), Hk = x.k.dim(1), S = x.k.dim(2),
              V = x.v.dim(3);
  const auto zeros = [](const Shape& shape) { return Tensor::zeros(shape, DType::float64); };
  AttentionResult r{zeros(x.dout.shape()), zeros(x.q.shape()), zeros(x.k.shape()),
                    zeros(x.v.shape()),    zeros({B, H, 1, S}), zeros({B, H, T, S})};
  const Tensor v = x.v.dense(), dout = x.dout.dense();
  const NaiveFeatures q(how.features, x.q), k(how.features, x.k);
  const Tensor bias = o.bias.defined() ? o.bias.detach().expand({B, H, 1, S}) : Tensor();
  for (Index b = 0; b < B; ++b)
    for (Index h = 0; h < H; ++h)
      for (Index i = 0; i < T; ++i) {
        const Index g = h / (H / Hk), row = (b * H + h) * T + i;
        const double *qi = q.values.ptr<double>() + row * D, *gi = dout.ptr<double>() + row * V;
        std::vector<Index> seen;
        std::vector<double> a, products, factors;
        double sum = 0;
        for (Index j = 0; j < S; ++j) {
          if (o.causal && j > i + S - T) continue;
          if (o.key_lengths.defined() && j >= static_cast<Index>(o.key_lengths.at({b}))) continue;
          if (o.key_mask.defined() && o.key_mask.at({b, j}) == 0) continue;
          const double product = dot(qi, k.values.ptr<double>() + ((b * Hk + g) * S + j) * D, D);
          products.push_back(product);
          factors.push_back(bias.defined() ? std::exp(bias.at({b, h, 0, j})) : 1);
          const double w = (map == FeatureMap::poly2 ? product * product : product) * factors.back();
          seen.push_back(j);
          a.push_back(w);
          sum += w;
        }
        if (sum == 0) continue;
        const double d = sum + (map == FeatureMap::exp ? 0 : how.features.eps);
        std::vector<double> dw(a.size());
        double mean = 0;
        for (std::size_t n = 0; n < seen.size(); ++n) {
          const Index at = ((b * Hk + g) * S + seen[n]) * V;
          for (Index c = 0; c < V; ++c) {
            r.out.ptr<double>()[row * V + c] += a[n] / d * v.ptr<double>()[at + c];
            r.dv.ptr<double>()[at + c] += a[n] / d * gi[c];
            dw[n] += gi[c] * v.ptr<double>()[at + c];
          }
          mean += a[n] / d * dw[n];
          r.weights.ptr<double>()[row * S + seen[n]] = a[n] / d;
        }
        for (std::size_t n = 0; n < seen.size(); ++n) {
          const double da = (dw[n] - mean) / d;
          const double dproduct = da * factors[n] * (map == FeatureMap::poly2 ? 2 * products[n] : 1);
          r.dbias.ptr<double>()[(b * H + h) * S + seen[n]] += da * a[n];
          for (Index c = 0; c < D; ++c) {
            const Index key = ((b * Hk + g) * S + seen[n]) * D;
            r.dq.ptr<double>()[row * D + c] +=
                dproduct * k.values.ptr<double>()[key + c] * q.slopes.ptr<double>()[row * D + c];
            r.dk.ptr<double>()[key + c] += dproduct * qi[c] * k.slopes.ptr<double>()[key + c];
          }
        }
      }
  return r;
}

inline AttentionResult run_linear(const AttentionData& x, LinearCase o, DType dtype = DType::float64) {
  Tape tape;
  const Tensor q = tape.watch(x.q.to(dtype)), k = tape.watch(x.k.to(dtype)), v = tape.watch(x.v.to(dtype));
  if (o.call.bias.defined()) o.call.bias = tape.watch(o.call.bias.to(dtype));
  const Tensor dout = x.dout.to(dtype);
  AttentionResult r;
  const Tensor y = linear_attention(q, k, v, o.call, o.features);
  tape.backward(y, dout);
  r.out = y.detach();
  r.dq = tape.grad(q), r.dk = tape.grad(k), r.dv = tape.grad(v);
  if (o.call.bias.defined()) r.dbias = tape.grad(o.call.bias);
  return r;
}

// Queries and keys that are valid for the map. With identity they are features, which must not be negative.
inline AttentionData data_for(const AttentionSize& s, FeatureMap map, std::uint64_t seed = 7) {
  AttentionData x = random_attention(s, seed);
  if (map == FeatureMap::identity) {
    x.q = x.q * x.q;
    x.k = x.k * x.k;
  }
  return x;
}

}  // namespace heed::test

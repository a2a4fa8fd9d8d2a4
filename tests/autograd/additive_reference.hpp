// Additive attention and its gradients as plain loops in float64, term by term from the formulas, without calling a
// kernel.
#pragma once
#include <algorithm>
#include <cmath>
#include <heed/autograd/attention.hpp>

#include "tests/autograd/attention_reference.hpp"

namespace heed::test {

struct AdditiveData {
  AttentionData pairs;
  Tensor u;
};

struct AdditiveResult {
  AttentionResult pairs;
  Tensor du;
};

inline AdditiveData random_additive(const AttentionSize& s, std::uint64_t seed = 7) {
  return {random_attention(s, seed), Rng(seed + 1).normal({s.heads, s.width}, 0, 0.7, DType::float64)};
}

inline bool allowed(const AttentionCall& o, Index b, Index h, Index i, Index j, Index T, Index S) {
  if (o.causal && j > i + S - T) return false;
  if (o.key_lengths.defined() && j >= static_cast<Index>(o.key_lengths.at({b}))) return false;
  if (o.key_mask.defined() && o.key_mask.at({b, j}) == 0) return false;
  return !o.mask.defined() || o.mask.at({b, h, i, j}) != 0;
}

// The factor of the weight of pair (row, j), as Philox draws it: 0, or 1 / (1 - dropout).
inline double kept(const Rng& drawn, double dropout, Index row, Index j, Index S) {
  const auto counter = drawn.position() + static_cast<std::uint64_t>(row * ((S + 3) / 4) + j / 4);
  const auto word = philox(drawn.seed(), counter, drawn.stream())[static_cast<std::size_t>(j % 4)];
  return word < dropout * 0x1p32 ? 0 : 1 / (1 - dropout);
}

// Term by term from the formulas: s_ij = u . t_ij + bias_ij, t_ij = tanh(q_i + k_j). `drawn` is the generator before a
// call with dropout; null without dropout.
inline AdditiveResult naive_additive(const AdditiveData& data, AttentionCall o, const Rng* drawn = nullptr) {
  const AttentionData& x = data.pairs;
  const Index B = x.q.dim(0), H = x.q.dim(1), T = x.q.dim(2), A = x.q.dim(3), Hk = x.k.dim(1), S = x.k.dim(2),
              V = x.v.dim(3);
  const auto zeros = [](const Shape& shape) { return Tensor::zeros(shape, DType::float64); };
  AdditiveResult all{{zeros(x.dout.shape()), zeros(x.q.shape()), zeros(x.k.shape()), zeros(x.v.shape()),
                      zeros({B, H, T, S}), zeros({B, H, T, S})},
                     zeros(data.u.shape())};
  AttentionResult& r = all.pairs;
  if (o.bias.defined()) o.bias = o.bias.detach().to(DType::float64).expand({B, H, T, S});
  if (o.mask.defined()) o.mask = o.mask.expand({B, H, T, S});
  for (Index b = 0; b < B; ++b)
    for (Index h = 0; h < H; ++h)
      for (Index i = 0; i < T; ++i) {
        const Index g = h / (H / Hk), row = (b * H + h) * T + i;
        const double *q = x.q.ptr<double>() + row * A, *u = data.u.ptr<double>() + h * A,
                     *dout = x.dout.ptr<double>() + row * V;
        std::vector<Index> seen;
        std::vector<double> p, t;  // t: [seen, A]
        for (Index j = 0; j < S; ++j) {
          if (!allowed(o, b, h, i, j, T, S)) continue;
          double s = o.bias.defined() ? o.bias.at({b, h, i, j}) : 0;
          for (Index c = 0; c < A; ++c) {
            t.push_back(std::tanh(q[c] + x.k.ptr<double>()[((b * Hk + g) * S + j) * A + c]));
            s += u[c] * t.back();
          }
          seen.push_back(j);
          p.push_back(s);
        }
        if (seen.empty()) continue;
        const double top = *std::max_element(p.begin(), p.end());
        double sum = 0, delta = 0;
        for (double& s : p) sum += s = std::exp(s - top);
        std::vector<double> dp(p.size());
        for (std::size_t n = 0; n < seen.size(); ++n) {
          const Index at = ((b * Hk + g) * S + seen[n]) * V;
          const double m = drawn != nullptr ? kept(*drawn, o.dropout, row, seen[n], S) : 1;
          p[n] /= sum;
          r.weights.ptr<double>()[row * S + seen[n]] = p[n];
          for (Index c = 0; c < V; ++c) {
            r.out.ptr<double>()[row * V + c] += m * p[n] * x.v.ptr<double>()[at + c];
            r.dv.ptr<double>()[at + c] += m * p[n] * dout[c];
            dp[n] += m * dout[c] * x.v.ptr<double>()[at + c];
          }
          delta += p[n] * dp[n];
        }
        for (std::size_t n = 0; n < seen.size(); ++n) {
          const double ds = p[n] * (dp[n] - delta);
          r.dbias.ptr<double>()[row * S + seen[n]] = ds;
          for (Index c = 0; c < A; ++c) {
            const double tanh = t[n * static_cast<std::size_t>(A) + static_cast<std::size_t>(c)];
            const double e = ds * u[c] * (1 - tanh * tanh);
            r.dq.ptr<double>()[row * A + c] += e;
            r.dk.ptr<double>()[((b * Hk + g) * S + seen[n]) * A + c] += e;
            all.du.ptr<double>()[h * A + c] += ds * tanh;
          }
        }
      }
  return all;
}

inline AdditiveResult run_additive(const AdditiveData& data, AttentionCall o, DType dtype = DType::float64) {
  Tape tape;
  const AttentionData& x = data.pairs;
  const Tensor q = tape.watch(x.q.to(dtype)), k = tape.watch(x.k.to(dtype)), v = tape.watch(x.v.to(dtype)),
               u = tape.watch(data.u.to(dtype));
  if (o.bias.defined()) o.bias = tape.watch(o.bias.to(dtype));
  const Tensor dout = x.dout.to(dtype);
  AdditiveResult all;
  AttentionResult& r = all.pairs;
  const Tensor y = additive_attention(q, k, v, u, o);
  tape.backward(y, dout);
  r.out = y.detach();
  r.dq = tape.grad(q), r.dk = tape.grad(k), r.dv = tape.grad(v), all.du = tape.grad(u);
  if (o.bias.defined()) r.dbias = tape.grad(o.bias);
  return all;
}

inline double additive_error(const AdditiveResult& a, const AdditiveResult& b, double min_scale = 0.1) {
  double scale = min_scale;
  for (const double e : b.du.to_vector<double>()) scale = std::max(scale, std::fabs(e));
  return std::max(attention_error(a.pairs, b.pairs, min_scale), worst(a.du, b.du, 0, scale));
}

inline std::vector<Tensor> tensors_of(const AdditiveResult& r) {
  return {r.pairs.out, r.pairs.dq, r.pairs.dk, r.pairs.dv, r.du};
}

}  // namespace heed::test

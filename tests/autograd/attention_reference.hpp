// Attention and its gradients as plain loops in float64, term by term from the formulas, without calling a kernel.
#pragma once
#include <heed/autograd/attention.hpp>
#include <heed/autograd/tape.hpp>
#include <heed/core/random.hpp>

#include "tests/support.hpp"

namespace heed::test {

struct AttentionSize {
  Index batch = 1, heads = 1, kv_heads = 1, queries = 1, keys = 1, width = 1, value_width = 1;
};

// Calls check(size, causal) for lengths and widths around blocks and vectors.
inline void at_block_and_vector_sizes(const std::function<void(const AttentionSize&, bool)>& check) {
  for (Index n : {1, 2, 3, 15, 16, 17, 31, 32, 33, 63, 64, 65, 130, 257}) {
    check({1, 1, 1, n, n, 8, 8}, true);
    check({1, 2, 1, n, 70, 5, 9}, false);
    check({2, 1, 1, 35, n, 9, 5}, true);
  }
  for (Index d : {1, 2, 3, 4, 15, 16, 17, 31, 32, 33, 63, 64, 65, 130}) {
    check({1, 1, 1, 37, 69, d, 16}, true);
    check({1, 1, 1, 37, 69, 16, d}, false);
  }
  check({1, 1, 1, 300, 600, thinned<Index>(64, 8), thinned<Index>(64, 8)}, true);
  check({1, 1, 1, 600, 300, thinned<Index>(32, 4), thinned<Index>(64, 8)}, true);  // the first rows have no keys
}

struct AttentionResult {
  Tensor out, dq, dk, dv, dbias, weights;
  Tensor dscores = {}, dsinks = {};  // gradients of the softmax's input [B, H, T, S] and of the sinks [H]
};

// The additions of flex_attention as plain functions of (b, h, query, key), with positions among the keys. Null: none.
struct NaiveRules {
  using Score = std::function<double(double s, Index b, Index h, Index q, Index k)>;
  Score f = {}, derivative = {};
  std::function<bool(Index b, Index h, Index q, Index k)> mask = {};
  std::vector<double> sinks = {};
};

struct AttentionData {
  Tensor q, k, v, dout;
};

inline AttentionData random_attention(const AttentionSize& s, std::uint64_t seed = 1, double spread = 1) {
  Rng rng(seed);
  return {rng.normal({s.batch, s.heads, s.queries, s.width}, 0, spread, DType::float64),
          rng.normal({s.batch, s.kv_heads, s.keys, s.width}, 0, 1, DType::float64),
          rng.normal({s.batch, s.kv_heads, s.keys, s.value_width}, 0, 1, DType::float64),
          rng.normal({s.batch, s.heads, s.queries, s.value_width}, 0, 1, DType::float64)};
}

inline Tensor random_mask(const Shape& shape, double share, std::uint64_t seed) {
  const Tensor u = Rng(seed).uniform(shape);
  Tensor m = Tensor::zeros(shape, DType::bool8);
  for (Index i = 0; i < m.numel(); ++i) m.ptr<bool>()[i] = u.ptr<float>()[i] < share;
  return m;
}

// A call for two sequences with the options that the bits select: 1 causal, 2 lengths, 4 a key mask. A loop over all
// values of bits thus tests each option alone and with the others. Tests add pair masks and biases, whose shapes
// differ.
inline AttentionCall call_of_bits(int bits, const AttentionSize& s) {
  AttentionCall o;
  if (bits & 1) o.causal = true;
  if (bits & 2) o.key_lengths = Tensor::from<std::int32_t>({static_cast<double>(s.keys - 3), 5});
  if (bits & 4) o.key_mask = random_mask({s.batch, s.keys}, 0.6, 3);
  return o;
}

// `drawn` is the generator before a call with dropout; null without dropout.
inline AttentionResult naive_attention(const AttentionData& x, const AttentionCall& o, const Rng* drawn = nullptr,
                                       std::optional<double> given_scale = {}, const NaiveRules& rules = {}) {
  const Index B = x.q.dim(0), H = x.q.dim(1), T = x.q.dim(2), D = x.q.dim(3), Hk = x.k.dim(1), S = x.k.dim(2),
              V = x.v.dim(3);
  const auto zeros = [](const Shape& shape) { return Tensor::zeros(shape, DType::float64); };
  AttentionResult r{zeros(x.dout.shape()), zeros(x.q.shape()),  zeros(x.k.shape()),  zeros(x.v.shape()),
                    zeros({B, H, T, S}),   zeros({B, H, T, S}), zeros({B, H, T, S}), zeros({H})};
  const double scale = given_scale.value_or(1 / std::sqrt(static_cast<double>(D)));
  const Tensor q = x.q.to(DType::float64).dense(), k = x.k.to(DType::float64).dense(),
               v = x.v.to(DType::float64).dense(), dout = x.dout.to(DType::float64).dense();
  const Tensor bias = o.bias.defined() ? o.bias.detach().to(DType::float64).expand({B, H, T, S}) : Tensor();
  const Tensor mask = o.mask.defined() ? o.mask.expand({B, H, T, S}) : Tensor();
  for (Index b = 0; b < B; ++b)
    for (Index h = 0; h < H; ++h)
      for (Index i = 0; i < T; ++i) {
        const Index g = h / (H / Hk), row = (b * H + h) * T + i;
        const double *qi = q.ptr<double>() + row * D, *gi = dout.ptr<double>() + row * V;
        std::vector<Index> seen;
        std::vector<double> p, m, slope;
        for (Index j = 0; j < S; ++j) {
          if (o.causal && j > i + S - T) continue;
          if (o.key_lengths.defined() && j >= static_cast<Index>(o.key_lengths.at({b}))) continue;
          if (o.key_mask.defined() && o.key_mask.at({b, j}) == 0) continue;
          if (o.documents.defined() && static_cast<double>(j) < o.documents.at({b, i})) continue;
          if (mask.defined() && mask.at({b, h, i, j}) == 0) continue;
          double s = 0;
          for (Index c = 0; c < D; ++c) s += qi[c] * k.ptr<double>()[((b * Hk + g) * S + j) * D + c];
          s = s * scale + (bias.defined() ? bias.at({b, h, i, j}) : 0);
          if (s == -kInf) continue;
          const Index position = i + S - T;
          if (rules.mask && !rules.mask(b, h, position, j)) continue;
          seen.push_back(j);
          p.push_back(rules.f ? rules.f(s, b, h, position, j) : s);
          slope.push_back(rules.derivative ? rules.derivative(s, b, h, position, j) : 1);
          double keep = 1;
          if (drawn != nullptr) {
            const auto counter = drawn->position() + static_cast<std::uint64_t>(row * ((S + 3) / 4) + j / 4);
            const auto word = philox(drawn->seed(), counter, drawn->stream())[static_cast<std::size_t>(j % 4)];
            keep = word < o.dropout * 0x1p32 ? 0 : 1 / (1 - o.dropout);
          }
          m.push_back(keep);
        }
        if (seen.empty()) continue;
        const bool sink = !rules.sinks.empty();
        const double logit = sink ? rules.sinks[static_cast<std::size_t>(h)] : -kInf;
        const double top = std::max(*std::max_element(p.begin(), p.end()), logit), taken = std::exp(logit - top);
        double sum = taken, delta = 0;
        for (double& s : p) sum += s = std::exp(s - top);
        for (double& s : p) s /= sum;
        std::vector<double> dp(p.size());
        for (std::size_t n = 0; n < seen.size(); ++n) {
          const double* vj = v.ptr<double>() + ((b * Hk + g) * S + seen[n]) * V;
          double* dvj = r.dv.ptr<double>() + ((b * Hk + g) * S + seen[n]) * V;
          for (Index c = 0; c < V; ++c) {
            r.out.ptr<double>()[row * V + c] += m[n] * p[n] * vj[c];
            dvj[c] += m[n] * p[n] * gi[c];
            dp[n] += m[n] * gi[c] * vj[c];
          }
          delta += p[n] * dp[n];
          r.weights.ptr<double>()[row * S + seen[n]] = p[n];
        }
        r.dsinks.ptr<double>()[h] -= taken / sum * delta;
        for (std::size_t n = 0; n < seen.size(); ++n) {
          double ds = p[n] * (dp[n] - delta);
          r.dscores.ptr<double>()[row * S + seen[n]] = ds;
          ds *= slope[n];
          r.dbias.ptr<double>()[row * S + seen[n]] = ds;
          for (Index c = 0; c < D; ++c) {
            r.dq.ptr<double>()[row * D + c] += scale * ds * k.ptr<double>()[((b * Hk + g) * S + seen[n]) * D + c];
            r.dk.ptr<double>()[((b * Hk + g) * S + seen[n]) * D + c] += scale * ds * qi[c];
          }
        }
      }
  return r;
}

// Runs heed's attention forward and backward in the given dtype. With bfloat16, bias and dout are float32.
inline AttentionResult run_attention(const AttentionData& x, AttentionCall o, DType dtype = DType::float64,
                                     std::optional<double> scale = {}) {
  Tape tape;
  const Tensor q = tape.watch(x.q.to(dtype)), k = tape.watch(x.k.to(dtype)), v = tape.watch(x.v.to(dtype));
  const DType scores = dtype == DType::bfloat16 ? DType::float32 : dtype;
  if (o.bias.defined()) o.bias = tape.watch(o.bias.to(scores));
  const Tensor dout = x.dout.to(scores);
  AttentionResult r;
  r.out = attention(q, k, v, o, scale);
  tape.backward(r.out, dout);
  r.out = r.out.detach();
  r.dq = tape.grad(q), r.dk = tape.grad(k), r.dv = tape.grad(v);
  if (o.bias.defined()) r.dbias = tape.grad(o.bias);
  return r;
}

// The largest difference of outputs and gradients, relative to the largest value of each tensor. That value counts as
// at least min_scale, because a gradient may consist of terms that cancel.
inline double attention_error(const AttentionResult& a, const AttentionResult& b, double min_scale = 0.1) {
  double max_error = 0;
  const auto compare = [&](const Tensor& x, const Tensor& y) {
    if (x.shape() != y.shape()) return void(max_error = 1e300);
    double scale = 1e-300;
    for (double e : y.to_vector<double>()) scale = std::max(scale, std::fabs(e));
    const double e = x.numel() == 0 ? 0 : worst(x, y, 0, std::max(scale, min_scale));
    max_error = std::max(max_error, e);
  };
  compare(a.out, b.out);
  compare(a.dq, b.dq);
  compare(a.dk, b.dk);
  compare(a.dv, b.dv);
  return max_error;
}

}  // namespace heed::test

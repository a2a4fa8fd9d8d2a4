// References for the conformance kit: attention in plain loops, in float64, from the weights of one query at a time.
#pragma once
#include <cmath>
#include <heed/layers/attention/conformance.hpp>
#include <heed/layers/model_config.hpp>
#include <vector>

namespace heed::test {

// One query: what it may see, and what it is.
struct NaiveRow {
  Index head, position, keys, size;  // position: P = i + S - T
  bool causal;
  const double* q;              // [size]
  const double* k;              // [keys, size]
  std::vector<Index> seen;      // keys that it may attend to
  std::vector<double> bias;     // [keys]: of the scores; where keys have features, e^bias is a factor of theirs
  const TensorsByName& values;   // the mechanism's parameters and buffers
  const MechanismOptions& own;  // what it was made with
  Index key_head = 0;           // b * Hk + h: of inputs [B, Hk, S, size]
  std::vector<bool> padding = {};  // [keys]: which are, by lengths or the key mask

  double dot(Index j) const {
    double s = 0;
    for (Index c = 0; c < size; ++c) s += q[c] * k[j * size + c];
    return s;
  }
  double scaled(Index j) const { return dot(j) / std::sqrt(static_cast<double>(size)); }
  double added(Index j) const { return bias[static_cast<std::size_t>(j)]; }
  double factor(Index j) const { return added(j) == 0 ? 1 : std::exp(added(j)); }
  const double* array(const char* name) const { return values.at(name).ptr<double>(); }  // contiguous
  Index count(const char* name, int axis) const { return values.at(name).dim(axis); }
};

using NaiveWeights = std::vector<double>;  // one for each of row.seen

// For ConformanceOptions::reference. weights(row) are those of one query; `own` is what rows show of the mechanism.
template <class Weights>
auto naive_by(Weights weights, const MechanismOptions& own = {}) {
  return [weights, own](const Tensor& q_any, const Tensor& k_any, const Tensor& v_any, const AttentionCall& call,
                        const TensorsByName& values) {
    const Tensor q = q_any.dense(), k = k_any.dense(), v = v_any.dense();
    const Index B = q.dim(0), H = q.dim(1), T = q.dim(2), D = q.dim(3), Hk = k.dim(1), S = k.dim(2), V = v.dim(3);
    const Tensor mask = call.mask.defined() ? call.mask.expand({B, H, T, S}) : Tensor();
    const Tensor bias = call.bias.defined() ? call.bias.detach().expand({B, H, T, S}) : Tensor();
    Tensor y = Tensor::zeros({B, H, T, V}, DType::float64);
    for (Index n = 0; n < B * H * T; ++n) {
      const Index b = n / T / H, h = n / T % H, i = n % T, group = b * Hk + h / (H / Hk);
      const double* keys = k.ptr<double>() + group * S * D;
      NaiveRow row{h, i + S - T, S, D, call.causal, q.ptr<double>() + n * D, keys, {}, {}, values, own, group};
      for (Index j = 0; j < S; ++j) {
        row.bias.push_back(bias.defined() ? bias.at({b, h, i, j}) : 0);
        row.padding.push_back((call.key_lengths.defined() && static_cast<double>(j) >= call.key_lengths.at({b})) ||
                              (call.key_mask.defined() && call.key_mask.at({b, j}) == 0));
        if ((call.causal && j > row.position) || row.padding.back()) continue;
        if (mask.defined() && mask.at({b, h, i, j}) == 0) continue;
        row.seen.push_back(j);
      }
      const NaiveWeights w = weights(row);
      for (std::size_t m = 0; m < w.size(); ++m)
        for (Index c = 0; c < V; ++c)
          y.ptr<double>()[n * V + c] += w[m] * v.ptr<double>()[(group * S + row.seen[m]) * V + c];
    }
    return y;
  };
}

}  // namespace heed::test

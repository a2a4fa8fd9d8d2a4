// The output of attention from the weights of one query at a time, in plain loops.
#include "tests/layers/attention/naive_row.hpp"

namespace heed::test {

decltype(ConformanceOptions::reference) naive_by(std::function<NaiveWeights(const NaiveRow&)> weights,
                                                 const MechanismOptions& own) {
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
      row.query_row = n;
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
        for (Index c = 0; c < V; ++c) {
          const double value = row.replaces_values ? 0 : v.ptr<double>()[(group * S + row.seen[m]) * V + c];
          y.ptr<double>()[n * V + c] += w[m] * (row.value_vectors.empty() ? value : value + row.value_vectors[m][c]);
        }
    }
    return y;
  };
}

}  // namespace heed::test

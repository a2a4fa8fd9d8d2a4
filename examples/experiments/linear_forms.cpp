// Forms of causal attention, made of ops.
#include "examples/experiments/linear_forms.hpp"

#include <cmath>
#include <heed/autograd/attention.hpp>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/linear_attention.hpp>
#include <heed/autograd/matmul.hpp>
#include <heed/autograd/reductions.hpp>
#include <heed/autograd/shape_ops.hpp>
#include <heed/core/random.hpp>

namespace heed::examples {
namespace {

constexpr double kEps = 1e-6;

Tensor elu_features(const Tensor& x) { return exp(minimum(x, 0.0)) + maximum(x, 0.0); }

Tensor by_matrix(const Tensor& q, const Tensor& k, const Tensor& v) {
  const Tensor scores = matmul(q, k.transpose(2, 3)) * (1 / std::sqrt(static_cast<double>(q.dim(3))));
  return matmul(masked_softmax(scores, allowed_pairs(q, k, {.causal = true})), v);
}

Tensor by_cumsum(const Tensor& q, const Tensor& k, const Tensor& v) {
  const Tensor a = elu_features(q), b = elu_features(k);
  const Tensor S = cumsum(b.unsqueeze(4) * v.unsqueeze(3), 2);  // [B, H, n, D, D]
  const Tensor d = sum(a * cumsum(b, 2), {-1}, true) + kEps;
  return matmul(a.unsqueeze(3), S).select(3, 0) / d;
}

Tensor by_recurrence(const Tensor& q, const Tensor& k, const Tensor& v) {
  const Tensor a = elu_features(q), b = elu_features(k);
  Tensor S, z;  // [B, H, D, D], [B, H, 1, D]
  std::vector<Tensor> rows;
  for (Index i = 0; i < q.dim(2); ++i) {
    const auto at = [&](const Tensor& x) { return x.slice(2, i, i + 1); };
    const Tensor product = matmul(at(b).transpose(2, 3), at(v));
    S = i == 0 ? product : S + product, z = i == 0 ? at(b) : z + at(b);
    rows.push_back(matmul(at(a), S) / (sum(at(a) * z, {-1}, true) + kEps));
  }
  return concatenate(rows, 2);
}

}  // namespace

const std::vector<AttentionForm>& attention_forms() {
  static const std::vector<AttentionForm> all = {AttentionForm::softmax_matrix, AttentionForm::softmax,
                                                 AttentionForm::chunks, AttentionForm::cumsum,
                                                 AttentionForm::recurrence};
  return all;
}

std::string name_of(AttentionForm form) {
  switch (form) {
    case AttentionForm::softmax_matrix: return "softmax, n x n";
    case AttentionForm::softmax: return "softmax";
    case AttentionForm::chunks: return "linear, chunks";
    case AttentionForm::cumsum: return "linear, cumsum";
    case AttentionForm::recurrence: return "linear, recurrence";
  }
  return {};
}

Tensor attend_by(AttentionForm form, const Tensor& q, const Tensor& k, const Tensor& v) {
  switch (form) {
    case AttentionForm::softmax_matrix: return by_matrix(q, k, v);
    case AttentionForm::softmax: return attention(q, k, v, {.causal = true});
    case AttentionForm::cumsum: return by_cumsum(q, k, v);
    case AttentionForm::recurrence: return by_recurrence(q, k, v);
    default: return linear_attention(q, k, v, {.causal = true});
  }
}

double bytes_of(AttentionForm form, Index length, const LayerShape& s, bool backward) {
  const auto n = static_cast<double>(length), h = static_cast<double>(s.heads), d = static_cast<double>(s.head_size);
  const double tensors = backward ? 6 : 3;
  switch (form) {
    case AttentionForm::softmax_matrix: return tensors * 4 * h * n * n;
    case AttentionForm::cumsum: return tensors * 4 * h * n * d * d;
    case AttentionForm::recurrence: return backward ? tensors * 4 * h * n * d * d : tensors * 4 * h * d * (n + d);
    default: return tensors * 4 * h * n * d;
  }
}

Measured measure(AttentionForm form, Index n, const LayerShape& s, const MeasureOptions& options) {
  const Tensor x = Rng(options.seed).normal({1, n, 3, s.heads, s.head_size});
  const auto attend = [&](const Tensor& t) {
    const auto third = [&](Index i) { return t.select(2, i).transpose(1, 2); };
    return attend_by(form, third(0), third(1), third(2));
  };
  return measure_forward(attend, x, options);
}

}  // namespace heed::examples

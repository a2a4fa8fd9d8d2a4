// Linformer: softmax attention on projected keys and values.
#include <cmath>
#include <heed/autograd/attention.hpp>
#include <heed/autograd/detail/attention_inputs.hpp>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/matmul.hpp>
#include <heed/autograd/reductions.hpp>
#include <heed/layers/attention/linear.hpp>
#include <heed/layers/linear.hpp>

namespace heed {
namespace {

// e [rows, S] x, with zeros at padding: [B, Hk, rows, D].
Tensor project(In x, In e, const AttentionCall& call) {
  return matmul(e->slice(1, 0, x.dim(2)), without_padding(x, call));
}

// bool8 [B, 1, 1, 1]: whether a sequence has any key.
Tensor with_keys(In k, const AttentionCall& call) {
  const NoTape guard;
  const Tensor ones = Tensor::ones({k.dim(0), 1, k.dim(2), 1});
  return sum(without_padding(ones, call), {1, 2, 3}, true) > 0;
}

}  // namespace

LinformerAttention::LinformerAttention(Exactly<Index> positions, Exactly<Index> rows, Rng& rng)
    : e(Tensor::empty({rows, positions})), f(Tensor::empty({rows, positions})) {
  require(positions > 0 && rows > 0, "LinformerAttention: positions is ", positions, " and rows is ", rows,
          "; both must be 1 or more");
  init::normal_(e, rng, 0, 1 / std::sqrt(static_cast<double>(rows)));
  init::normal_(f, rng, 0, 1 / std::sqrt(static_cast<double>(rows)));
}

Tensor LinformerAttention::apply(In q, In k, In v, const AttentionCall& call) const {
  detail::check_heads("linformer attention", q, k, v);
  detail::check_key_masks("linformer attention", k, call);
  check(e.rank() == 2 && e.shape() == f.shape(), q.where(), "linformer attention: e is ", e, " and f is ",
        f, "; both must be [rows, positions]");
  check(k.dim(2) <= e.dim(1), q.where(), "linformer attention: k is ", k.tensor(), " and e is ", e,
        "; there may be at most ", e.dim(1), " positions");
  const Tensor y = attention(q, project(k, e, call), project(v, f, call));
  if (!call.key_lengths.defined() && !call.key_mask.defined()) return y;
  return where(with_keys(k, call), y, 0.0);  // a sequence without any key gets zeros
}

}  // namespace heed

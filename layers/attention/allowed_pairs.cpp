// Masks of a call as tensors, for mechanisms that are compositions of ops.
#include <heed/autograd/attention_inputs.hpp>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/shape_ops.hpp>
#include <heed/autograd/softmax.hpp>
#include <heed/layers/attention/allowed_pairs.hpp>
#include <limits>

namespace heed {

Tensor allowed_pairs(In q, In k, const AttentionCall& call) {
  detail::check_key_masks("allowed_pairs", k, call);
  const Index batch = k.dim(0), queries = q.dim(2), keys = k.dim(2);
  Tensor allowed = Tensor::ones({1, 1, queries, keys}, DType::bool8);
  if (call.causal) allowed = tril(allowed, keys - queries);
  if (call.key_lengths.defined())
    allowed = logical_and(allowed, lt(Tensor::arange(keys), call.key_lengths.view({batch, 1, 1, 1})));
  if (call.key_mask.defined()) allowed = logical_and(allowed, call.key_mask.view({batch, 1, 1, keys}));
  if (call.mask.defined()) allowed = logical_and(allowed, call.mask);
  return allowed;
}

Tensor additive_mask(In q, In k, const AttentionCall& call) {
  const Tensor bias = call.bias.defined() ? call.bias : Tensor::zeros({}, q.dtype());
  return where(allowed_pairs(q, k, call), bias, -std::numeric_limits<double>::infinity());
}

Tensor masked_softmax(In scores, In allowed) {
  // A finite number: -inf throughout a row would give NaN. The second select is for those rows.
  return where(allowed, softmax(where(allowed, scores, -1e30)), 0.0);
}

Tensor without_padding(In x, const AttentionCall& call) {
  detail::check_key_masks("without_padding", x, call);
  return detail::without_padding(x, call);
}

}  // namespace heed

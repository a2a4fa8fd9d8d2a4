// The tensors of an attention call, and its masks as tensors, for mechanisms composed of ops.
#include <heed/autograd/attention.hpp>
#include <heed/autograd/detail/attention_inputs.hpp>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/matmul.hpp>
#include <heed/autograd/norms.hpp>
#include <heed/core/members.hpp>
#include <limits>

namespace heed {

void AttentionCall::members(MemberVisitor& visit) {
  const auto name = [&](const char* what, Tensor& x, bool has_rows) {
    return has_rows ? visit.buffer(what, x) : visit.shared(what, x);
  };
  const auto of_batch = [](const Tensor& x) { return x.defined() && x.rank() == 4 && x.dim(0) > 1; };
  visit.buffer("key_lengths", key_lengths), visit.buffer("key_mask", key_mask), visit.buffer("documents", documents);
  name("mask", mask, of_batch(mask)), name("bias", bias, of_batch(bias));
  name("first_query", first_query, first_query.defined() && first_query.rank() > 0);
}

Tensor positions_in_documents(const Tensor& documents) {
  require(documents.defined() && documents.rank() == 2 && documents.dtype() == DType::int32,
          "positions_in_documents: documents is ", documents, "; it must be [batch, positions] int32");
  const Tensor begins = documents.dense();
  Tensor positions = Tensor::empty(documents.shape(), DType::int32);
  const Index length = documents.dim(1);
  for (Index n = 0; n < documents.numel(); ++n) {
    const std::int32_t* begin = begins.ptr<std::int32_t>() + n;
    const auto i = static_cast<std::int32_t>(n % length);
    require(*begin == i || (i > 0 && *begin == begin[-1]), "positions_in_documents: documents[", n / length, ", ", i,
            "] is ", *begin, "; it must be ", i, ", where a document begins", i > 0 ? ", or the number before" : "");
    positions.ptr<std::int32_t>()[n] = i - *begin;
  }
  return positions;
}

AttentionCall detail::with_document_mask(In q, In k, const AttentionCall& call) {
  if (!call.documents.defined()) return call;
  AttentionCall masked = call;
  masked.mask = allowed_block({.documents = call.documents, .mask = call.mask},
                              {q.dim(0), q.dim(1), q.dim(2), k.dim(2)}, 0, q.dim(2), k.dim(2));
  masked.documents = {};
  return masked;
}

Tensor detail::allowed_block(const AttentionCall& call, const Shape& grid, Index first, Index last, Index keys) {
  Tensor allowed;
  const auto also = [&](const Tensor& x) { allowed = allowed.defined() ? logical_and(allowed, x) : x; };
  const Index batch = grid[0];
  if (call.causal) {
    const Tensor i = Tensor::arange(grid[2]).slice(0, first, last).unsqueeze(1);
    also((Tensor::arange(keys) <= i + query_position(0, grid[2], grid[3])).unsqueeze(0).unsqueeze(0));
  }
  if (call.key_lengths.defined()) also(Tensor::arange(keys) < call.key_lengths.view({batch, 1, 1, 1}));
  if (call.key_mask.defined()) also(call.key_mask.slice(1, 0, keys).view({batch, 1, 1, keys}));
  if (call.documents.defined())
    also(Tensor::arange(keys) >= call.documents.slice(1, first, last).unsqueeze(1).unsqueeze(3));
  if (call.mask.defined()) also(call.mask.expand(grid).slice(2, first, last).slice(3, 0, keys));
  return allowed;
}

Tensor detail::non_finite_part(const Tensor& weights, const Tensor& v, const Tensor& seen) {
  const NoTape guard;
  const MatmulPrecision exact(DType::float32);
  const auto meets = [&](const Tensor& pairs, const Tensor& these) {
    return matmul(pairs.to(weights.dtype()), these.to(weights.dtype())) > 0;
  };
  const Tensor unweighted = where(eq(weights, 0), seen, 0.0);
  const Tensor up = v >= kInfinity, down = v <= -kInfinity, plus = weights > 0, minus = weights < 0;
  const Tensor rises = logical_or(meets(plus, up), meets(minus, down));
  const Tensor falls = logical_or(meets(plus, down), meets(minus, up));
  Tensor y = masked_fill(Tensor::zeros(rises.shape(), weights.dtype()), rises, kInfinity);
  y = where(falls, y - kInfinity, y);  // NaN where infinities of both signs meet
  const Tensor nan = logical_or(meets(seen, isnan(v)), meets(unweighted, logical_or(up, down)));
  return masked_fill(y, nan, std::numeric_limits<double>::quiet_NaN());
}

Tensor allowed_pairs(In q, In k, const AttentionCall& call) {
  detail::check_key_masks("allowed_pairs", k, call);
  detail::check_documents("allowed_pairs", q, k, call);
  const Shape grid = {k.dim(0), q.dim(1), q.dim(2), k.dim(2)};
  const Tensor allowed = detail::allowed_block(call, grid, 0, grid[2], grid[3]);
  return allowed.defined() ? allowed : Tensor::ones({1, 1, grid[2], grid[3]}, DType::bool8);
}

Tensor additive_mask(In q, In k, const AttentionCall& call) {
  const Tensor bias = call.bias.defined() ? call.bias : Tensor::zeros({}, q.dtype());
  return where(allowed_pairs(q, k, call), bias, -detail::kInfinity);
}

Tensor masked_softmax(In scores, In allowed) {
  // A finite number, because a row of -inf would give NaN. The outer select clears such rows.
  return where(allowed, softmax(where(allowed, scores, -1e30)), 0.0);
}

Tensor without_padding(In x, const AttentionCall& call, const char* op) {
  check(x.rank() == 4, x.where(), op, ": x is ", x.tensor(), "; it must be [batch, heads, positions, size]");
  detail::check_key_masks(op, x, call);
  const Tensor seen = detail::allowed_block({.key_lengths = call.key_lengths, .key_mask = call.key_mask},
                                            {x.dim(0), x.dim(1), 1, x.dim(2)}, 0, 1, x.dim(2));  // [B, 1, 1, S]
  return seen.defined() ? masked_fill(x, logical_not(seen.transpose(2, 3)), 0) : x.tensor();
}

}  // namespace heed

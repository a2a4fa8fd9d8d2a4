// The type-erased decode state: its checks and copies.
#include <algorithm>
#include <heed/layers/attention/detail/row_lengths.hpp>
#include <heed/layers/attention/states.hpp>

namespace heed {

Tensor AttentionState::apply(In q, In k, In v, const AttentionCall& call, std::span<const Tensor> inputs) {
  check(self_ != nullptr, q.where(), "AttentionState: the state is empty; create it with make_state() of a mechanism");
  check(q.rank() == 4 && k.rank() == 4 && q.dim(2) == k.dim(2), q.where(), "AttentionState: q is ", q.tensor(),
        " and k is ", k.tensor(), "; both must be [batch, heads, positions, size], with as many queries as keys");
  const Tensor before = lengths();
  check(before.numel() == 0 || before.dim(0) == q.dim(0), q.where(), "AttentionState: q is ", q.tensor(),
        " but the state has ", before.numel(), " rows; the batch must stay the same (rows() changes it)");
  check(!call.key_mask.defined() && !call.mask.defined() && call.dropout == 0, q.where(),
        "AttentionState: the call has a mask or dropout; a step supports only key_lengths and bias");
  check(!call.documents.defined(), q.where(),
        "AttentionState: the call has documents, but a state continues one document per row");
  detail::check_inputs("AttentionState", "", inputs_, q, k, inputs);
  const auto on_tape = [](const Tensor& x) { return needs_gradient({x}); };
  check(!needs_gradient({q, k, v}) && std::none_of(inputs.begin(), inputs.end(), on_tape), q.where(),
        "AttentionState: q, k or v requires a gradient, but no gradient passes through a state; attend to all "
        "positions at once to train, or decode under NoTape");
  if (!widens_ || q.dtype() != DType::bfloat16) return self_->apply(q, k, v, call, inputs);
  const std::vector<Tensor> wide = detail::widened(inputs);
  return self_->apply(detail::widened(q), detail::widened(k), detail::widened(v), call, wide).to(DType::bfloat16);
}

Tensor detail::widened(In x) { return x.dtype() == DType::bfloat16 ? x.tensor().to(DType::float32) : x.tensor(); }

std::vector<Tensor> detail::widened(std::span<const Tensor> inputs) {
  std::vector<Tensor> wide;
  for (const Tensor& x : inputs) wide.push_back(widened(x));
  return wide;
}

AttentionState AttentionState::rows(const Tensor& indices) const {
  require(self_ != nullptr, "AttentionState: the state is empty; create it with make_state() of a mechanism");
  if (lengths().numel() == 0) return *this;
  const NoTape guard;  // no gradient passes through decoding
  return AttentionState(*this, indices);
}

Tensor AttentionState::lengths() const { return self_ ? self_->lengths() : Tensor::zeros({0}, DType::int32); }

Index AttentionState::length() const { return detail::longest_of(lengths()); }

void AttentionState::members(MemberVisitor& visit) {
  if (self_) self_->members(visit);
}

void detail::unshare(const std::vector<NamedBuffer>& copy, const std::vector<NamedBuffer>& from) {
  for (std::size_t i = 0; i < copy.size(); ++i)
    if (copy[i].buffer->defined() && copy[i].buffer->storage() == from[i].buffer->storage())
      *copy[i].buffer = copy[i].buffer->clone();
}

}  // namespace heed

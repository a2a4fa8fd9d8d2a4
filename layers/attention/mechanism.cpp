// The type-erased attention mechanism: checks of calls, bfloat16, weights and decode states.
#include <heed/autograd/record.hpp>
#include <heed/autograd/shape_ops.hpp>
#include <heed/layers/attention/mechanism.hpp>

namespace heed {

void detail::check_inputs(const std::string& name, const char* what, const std::vector<MechanismInput>& declared, In q,
                          In k, std::span<const Tensor> given) {
  check(given.size() == declared.size(), q.where(), name, what, ": got ", given.size(),
        given.size() == 1 ? " input" : " inputs", " in addition to q, k and v; expected ", declared.size(),
        ", as declared (a mechanism by inputs(), a state by AttentionState(state, inputs()))");
  for (std::size_t i = 0; i < given.size(); ++i) {
    const Shape shape = (declared[i].of_queries() ? q : k).shape().with(-1, declared[i].size);
    check(given[i].defined() && given[i].shape() == shape && given[i].dtype() == q.dtype(), q.where(), name, what,
          ": input ", declared[i].name, " is ", given[i], "; it must be ", shape, " ", name_of(q.dtype()));
  }
}

std::vector<MechanismInput> AttentionMechanism::checked(const std::string& name, std::vector<MechanismInput> inputs) {
  require(inputs.size() <= kMaxMechanismInputs, name, " attention: inputs() declares ", inputs.size(),
          " inputs; it may declare at most ", kMaxMechanismInputs, ", each of any size");
  for (const MechanismInput& input : inputs)
    require(input.size > 0 && input.rank >= 0, name, " attention: the size of input ", input.name, " is ", input.size,
            " and its rank ", input.rank, "; the size must be 1 or more, and the rank 0 or more");
  return inputs;
}

void AttentionMechanism::check_call(In q, In k, In v, const AttentionCall& call, std::span<const Tensor> given) const {
  const AttentionCapabilities& can = capabilities_;
  const Where& where = q.where();
  check(q.rank() == 4 && k.rank() == 4 && v.rank() == 4, where, name_, " attention: q is ", q.tensor(), ", k is ",
        k.tensor(), " and v is ", v.tensor(), "; each must be [batch, heads, positions, size]");
  const Index batch = q.dim(0), heads = q.dim(1), groups = k.dim(1);
  check(k.dim(0) == batch && v.dim(0) == batch && v.dim(1) == groups && v.dim(2) == k.dim(2) && k.dim(3) == q.dim(3),
        where, name_, " attention: q is ", q.tensor(), ", k is ", k.tensor(), " and v is ", v.tensor(),
        "; batch, key positions and the size of q and k must agree");
  check(groups == heads || (can.grouped && groups > 0 && heads % groups == 0), where, name_, " attention: q has ",
        heads, " heads and k has ", groups,
        can.grouped ? "; the heads of q must be a multiple of the heads of k" : "; they must be equal");
  check_supported(q, k.dim(2), call);
  detail::check_inputs(name_, " attention", inputs_, q, k, given);
}

void AttentionMechanism::check_supported(In q, Index keys, const AttentionCall& call) const {
  const AttentionCapabilities& can = capabilities_;
  const auto need = [&](bool used, bool has, const char* what) {
    check(!used || has, q.where(), name_, " attention does not support ", what, can.why.empty() ? "" : ": ", can.why);
  };
  need(call.causal, can.causal, "causal masking");
  need(!call.causal, !can.causal_only, "attention to later positions (it is causal only)");
  need(call.key_lengths.defined() || call.key_mask.defined(), can.key_mask, "a key mask");
  need(call.mask.defined(), can.full_mask, "a mask of single pairs");
  need(call.documents.defined(), can.documents, "several documents in a row");
  const bool of_keys = call.bias.defined() && (call.bias.rank() < 2 || call.bias.dim(-2) == 1);
  need(call.bias.defined() && !of_keys, can.bias, "a bias of single pairs");
  need(of_keys, can.bias || can.key_bias, "a bias");
  need(call.dropout > 0, can.dropout, "dropout on weights");
  need(q.dim(2) != keys, can.cross, "different numbers of queries and keys");
}

bool AttentionMechanism::must_widen(In q) const { return !capabilities_.bfloat16 && q.dtype() == DType::bfloat16; }

Tensor AttentionMechanism::apply(In q, In k, In v, const AttentionCall& call, std::span<const Tensor> given) const {
  check_call(q, k, v, call, given);
  if (must_widen(q)) {
    const std::vector<Tensor> wide = detail::widened(given);
    return apply(detail::widened(q), detail::widened(k), detail::widened(v), call, wide).to(DType::bfloat16);
  }
  Tensor y = self_->apply(q, k, v, call, given);
  // Mixed-up axes would otherwise be detected far from here.
  check(y.defined() && y.shape() == Shape{q.dim(0), q.dim(1), q.dim(2), v.dim(3)} && y.dtype() == q.dtype(), q.where(),
        name_, " attention: apply() returned ", y, " for q ", q.tensor(), " and v ", v.tensor(),
        "; it must return [batch, heads, queries, size of v] in the dtype of q");
  return y;
}

Tensor AttentionMechanism::map_keys(In k, const AttentionCall& call) const {
  return self_->map_keys(maps_keys() && must_widen(k) ? detail::widened(k) : k.tensor(), call);
}

Tensor AttentionMechanism::apply_mapped(In q, In keys, In v, const AttentionCall& call) const {
  check(q.rank() == 4 && v.rank() == 4, q.where(), name_, " attention: q is ", q.tensor(), " and v is ", v.tensor(),
        "; each must be [batch, heads, positions, size]");
  check_supported(q, v.dim(2), call);
  check(inputs_.empty(), q.where(), name_,
        " attention: the mechanism declares inputs, which apply_mapped() cannot pass; use apply()");
  if (must_widen(q))
    return self_->apply_mapped(detail::widened(q), detail::widened(keys), detail::widened(v), call).to(DType::bfloat16);
  return self_->apply_mapped(q, keys, v, call);
}

Tensor AttentionMechanism::weights(In q, In k, const AttentionCall& original, std::span<const Tensor> given) const {
  require(capabilities_.weights, name_, " attention does not support weights", capabilities_.why.empty() ? "" : ": ",
          capabilities_.why);
  AttentionCall call = original;
  call.dropout = 0;
  check_call(q, k, k, call, given);
  const NoTape guard;
  if (q.dtype() == DType::bfloat16)
    return weights(detail::widened(q), detail::widened(k), original, detail::widened(given));
  if (Tensor own = self_->weights(q, k, call, given); own.defined()) return own;
  // The weight of key j is the result for a value that is 1 at position j and 0 elsewhere.
  const Index keys = k.dim(2);
  const Tensor one_each = one_hot(Tensor::arange(keys), keys, q.dtype());
  return self_->apply(q, k, one_each.expand({k.dim(0), k.dim(1), keys, keys}), call, given);
}

AttentionState AttentionMechanism::make_state() const {
  const AttentionCapabilities& can = capabilities_;
  require(can.state, name_, " attention does not support a decode state", can.why.empty() ? "" : ": ", can.why);
  AttentionState state = self_->make_state();
  if (!can.bfloat16) state.take_float32();
  return state;
}

void AttentionMechanism::members(MemberVisitor& visit) { self_->members(visit); }

}  // namespace heed

// Transformer blocks and stacks: calls, decoding, and the selection of rows.
#include <algorithm>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/shape_ops.hpp>
#include <heed/layers/attention/detail/row_lengths.hpp>
#include <heed/layers/transformer.hpp>

namespace heed {
namespace {

MultiHeadAttentionOptions attention_options(const TransformerOptions& o, Index memory_width, bool has_weights) {
  return {.width = o.width,
          .heads = o.heads,
          .kv_heads = o.kv_heads,
          .key_size = o.key_size,
          .value_size = o.value_size,
          .memory_width = memory_width,
          .bias = o.bias,
          .dropout = has_weights ? o.attention_dropout.value_or(o.dropout) : 0,
          .rope = o.rope && memory_width == 0,
          .qk_norm = o.qk_norm,
          .relative_clip = memory_width == 0 ? o.relative_clip : 0};
}

}  // namespace

TransformerBlock::TransformerBlock(const TransformerOptions& o, Rng& rng, AttentionMechanism mechanism,
                                   AttentionMechanism cross_mechanism)
    : norm1(o.norm, o.width, o.bias),
      attention(attention_options(o, 0, mechanism.capabilities().dropout), rng, std::move(mechanism)),
      norm2(o.norm, o.width, o.bias),
      mlp(o.width, rng, {.hidden = o.hidden, .activation = o.activation, .dropout = o.dropout, .bias = o.bias}),
      drop{o.dropout},
      norm_first_(o.norm_first),
      causal_(o.causal) {
  if (o.memory_width == 0) return;
  norm_cross.emplace(o.norm, o.width, o.bias);
  const bool has_dropout = cross_mechanism.capabilities().dropout;
  cross.emplace(attention_options(o, o.memory_width, has_dropout), rng, std::move(cross_mechanism));
}

// Applies the parts in order, each with its residual and norm. The feed-forward part has its own dropout.
template <class Self, class Cross>
Tensor TransformerBlock::run(In x, bool has_memory, const Self& self_part, const Cross& cross_part) const {
  check(cross.has_value() == has_memory, x.where(), "TransformerBlock: this block ",
        cross ? "attends to a memory; call it with one"
              : "has no cross-attention; set memory_width, or call it without a memory");
  if (norm_first_) {
    Tensor h = x + drop(self_part(In(norm1(x), x.where())));
    if (cross) h = h + drop(cross_part((*norm_cross)(h)));
    return h + mlp(norm2(h));
  }
  Tensor h = norm1(x + drop(self_part(x)));
  if (cross) h = (*norm_cross)(h + drop(cross_part(h)));
  return norm2(h + mlp(h));
}

ProjectedMemory TransformerBlock::project(In memory) const {
  check(cross.has_value(), memory.where(),
        "TransformerBlock: this block has no cross-attention; set memory_width, or call it without a memory");
  return cross->project(memory);
}

static AttentionCall causal_too(AttentionCall call, bool causal) {
  call.causal = call.causal || causal;
  return call;
}

static Tensor no_cross(In h) { return h; }  // placeholder for blocks without a memory; never called

Tensor TransformerBlock::operator()(In x, const AttentionCall& call) const {
  return run(
      x, false, [&](In h) { return attention(h, causal_too(call, causal_)); }, no_cross);
}

Tensor TransformerBlock::operator()(In x, const ProjectedMemory& memory, const AttentionCall& call,
                                    const AttentionCall& memory_call) const {
  return run(
      x, true, [&](In h) { return attention(h, causal_too(call, causal_)); },
      [&](In h) { return (*cross)(h, memory, memory_call); });
}

Tensor TransformerBlock::weighed(In x, const ProjectedMemory& memory, const AttentionCall& call,
                                 const AttentionCall& memory_call, Tensor& weights) const {
  return run(
      x, true, [&](In h) { return attention(h, causal_too(call, causal_)); },
      [&](In h) {
        weights = cross->weights(h, memory, memory_call);
        return (*cross)(h, memory, memory_call);
      });
}

Tensor TransformerBlock::decode(In x, AttentionState& state, const AttentionCall& call) const {
  return run(
      x, false, [&](In h) { return attention.decode(h, state, call); }, no_cross);
}

// Sets first_query for rows that have seen `seen` positions, for mechanisms that align queries and keys by position.
static AttentionCall call_after(AttentionCall call, const Tensor& seen) {
  if (seen.numel() > 0) call.first_query = call.first_query.defined() ? call.first_query + seen : seen;
  return call;
}

Tensor TransformerBlock::decode(In x, AttentionState& state, const ProjectedMemory& memory, const AttentionCall& call,
                                const AttentionCall& memory_call) const {
  check(cross.has_value(), x.where(),
        "TransformerBlock: this block has no cross-attention; set memory_width, or call it without a memory");
  const Tensor seen = state ? state.lengths() : Tensor::zeros({0}, DType::int32);
  const AttentionCall of_memory = call_after(memory_call, seen);
  return run(
      x, true, [&](In h) { return attention.decode(h, state, call); },
      [&](In h) { return (*cross)(h, memory, of_memory); });
}

Transformer::Transformer(const TransformerOptions& o, Rng& rng, const MechanismFactory& mechanism,
                         const MechanismFactory& cross_mechanism) {
  require(o.layers >= 0, "Transformer: layers is ", o.layers, "; it must be 0 or more");
  blocks.reserve(static_cast<std::size_t>(o.layers));
  for (Index i = 0; i < o.layers; ++i) {
    AttentionMechanism own = mechanism(i, rng);
    if (o.memory_width > 0)
      blocks.emplace_back(o, rng, std::move(own), cross_mechanism(i, rng));
    else
      blocks.emplace_back(o, rng, std::move(own));
  }
  if (o.norm_first) norm.emplace(o.norm, o.width, o.bias);
}

// Passes x through all blocks by apply(block, h, i), then through the last norm.
template <class Apply>
static Tensor through(const Transformer& model, In x, const Apply& apply) {
  Tensor h = x;
  for (std::size_t i = 0; i < model.blocks.size(); ++i) h = apply(model.blocks[i], In(h, x.where()), i);
  return model.norm ? (*model.norm)(In(h, x.where())) : h;
}

Tensor Transformer::operator()(In x, const AttentionCall& call) const {
  return through(*this, x, [&](const TransformerBlock& b, In h, std::size_t) { return b(h, call); });
}

Tensor Transformer::operator()(In x, In memory, const AttentionCall& call, const AttentionCall& memory_call) const {
  return through(*this, x,
                 [&](const TransformerBlock& b, In h, std::size_t) { return b(h, memory, call, memory_call); });
}

std::vector<Tensor> Transformer::memory_weights(In x, In memory, const AttentionCall& call,
                                                const AttentionCall& memory_call) const {
  const NoTape no_tape;
  const Evaluation evaluation;
  std::vector<Tensor> weights(blocks.size());
  through(*this, x, [&](const TransformerBlock& b, In h, std::size_t i) {
    return b.weighed(h, b.project(memory), call, memory_call, weights[i]);
  });
  return weights;
}

TransformerState Transformer::make_state() const {
  TransformerState state;
  for (const TransformerBlock& block : blocks) state.self.push_back(block.attention.mechanism.make_state());
  return state;
}

TransformerState Transformer::make_state(In memory, const AttentionCall& memory_call) const {
  const NoTape guard;  // no gradient passes through decoding
  TransformerState state = make_state();
  state.memory_call = memory_call;
  state.sources = Tensor::arange(memory.dim(0));
  for (const TransformerBlock& block : blocks) {
    ProjectedMemory& m = state.memory.emplace_back(block.project(memory));
    const AttentionMechanism& mechanism = block.cross->mechanism;
    if (mechanism.maps_keys()) m.mapped = mechanism.map_keys({m.k, memory.where()}, memory_call);
  }
  return state;
}

Tensor Transformer::decode(In x, TransformerState& state, const AttentionCall& call) const {
  const bool has_memory = !state.memory.empty();
  check(state.self.size() == blocks.size() && (!has_memory || state.memory.size() == blocks.size()), x.where(),
        "Transformer: the state has ", state.self.size(), " blocks and the model has ", blocks.size(),
        "; create the state with make_state()");
  return through(*this, x, [&](const TransformerBlock& b, In h, std::size_t i) {
    return has_memory ? b.decode(h, state.self[i], state.memory[i], call, state.memory_call)
                      : b.decode(h, state.self[i], call);
  });
}

TransformerState TransformerState::rows(const Tensor& indices) const {
  TransformerState picked{pick_rows(self, indices), memory, memory_call};
  if (sources.defined()) picked.sources = index_select(sources, 0, indices);
  if (memory.empty() || (sources.defined() && picked.sources.numel() == sources.numel() &&
                         std::ranges::equal(detail::row_lengths(picked.sources), detail::row_lengths(sources))))
    return picked;
  picked.memory.clear();
  for (const ProjectedMemory& m : memory) picked.memory.push_back(m.rows(indices));
  AttentionCall& call = picked.memory_call;
  for (Tensor* x : {&call.key_lengths, &call.key_mask, &call.first_query})
    if (x->defined() && x->rank() > 0) *x = index_select(*x, 0, indices);
  for (Tensor* x : {&call.mask, &call.bias})
    if (x->defined() && x->rank() == 4 && x->dim(0) > 1) *x = index_select(*x, 0, indices);
  return picked;
}

void TransformerBlock::members(MemberVisitor& visit) {
  visit("norm1", norm1);
  visit("attention", attention);
  visit("norm_cross", norm_cross);
  visit("cross", cross);
  visit("norm2", norm2);
  visit("mlp", mlp);
}

void Transformer::members(MemberVisitor& visit) {
  visit("blocks", blocks);
  visit("norm", norm);
}

}  // namespace heed

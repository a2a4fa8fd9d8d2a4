#include <heed/autograd/elementwise.hpp>
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
          .dropout = has_weights ? o.dropout : 0,
          .rope = o.rope && memory_width == 0,
          .relative_clip = memory_width == 0 ? o.relative_clip : 0};
}

}  // namespace

TransformerBlock::TransformerBlock(const TransformerOptions& o, Rng& rng, AttentionMechanism mechanism)
    : norm1(o.norm, o.width, o.bias),
      attention(attention_options(o, 0, mechanism.capabilities().dropout), rng, std::move(mechanism)),
      norm2(o.norm, o.width, o.bias),
      mlp(o.width, rng, {.hidden = o.hidden, .activation = o.activation, .dropout = o.dropout, .bias = o.bias}),
      drop{o.dropout},
      norm_first_(o.norm_first),
      causal_(o.causal) {
  if (o.memory_width > 0) {
    norm_cross.emplace(o.norm, o.width, o.bias);
    cross.emplace(attention_options(o, o.memory_width, true), rng);
  }
}

// The block's parts in order, each with its residual and norm; the dropout of the feed-forward part is its own.
template <class Self, class Cross>
Tensor TransformerBlock::run(In x, const Self& self_part, const Cross& cross_part) const {
  if (norm_first_) {
    Tensor h = x + drop(self_part(In(norm1(x), x.where())));
    if (cross) h = h + drop(cross_part((*norm_cross)(h)));
    return h + mlp(norm2(h));
  }
  Tensor h = norm1(x + drop(self_part(x)));
  if (cross) h = (*norm_cross)(h + drop(cross_part(h)));
  return norm2(h + mlp(h));
}

Tensor TransformerBlock::operator()(In x, const AttentionCall& call) const {
  check(!cross, x.where(), "TransformerBlock: this block attends to a memory; call it with one");
  AttentionCall c = call;
  c.causal = c.causal || causal_;
  return run(
      x, [&](In h) { return attention(h, c); }, [](In h) { return h.tensor(); });
}

Tensor TransformerBlock::operator()(In x, In memory, const AttentionCall& call,
                                    const AttentionCall& memory_call) const {
  check(cross.has_value(), x.where(),
        "TransformerBlock: this block has no cross-attention; set memory_width, or call it without a memory");
  AttentionCall c = call;
  c.causal = c.causal || causal_;
  return run(
      x, [&](In h) { return attention(h, c); }, [&](In h) { return (*cross)(h, memory, memory_call); });
}

Tensor TransformerBlock::decode(In x, AttentionState& state, const AttentionCall& call) const {
  check(!cross, x.where(), "TransformerBlock: this block attends to a memory; call it with one");
  return run(
      x, [&](In h) { return attention.decode(h, state, call); }, [](In h) { return h.tensor(); });
}

Tensor TransformerBlock::decode(In x, In memory, AttentionState& state, const AttentionCall& call,
                                const AttentionCall& memory_call) const {
  check(cross.has_value(), x.where(),
        "TransformerBlock: this block has no cross-attention; set memory_width, or call it without a memory");
  return run(
      x, [&](In h) { return attention.decode(h, state, call); }, [&](In h) { return (*cross)(h, memory, memory_call); });
}

Transformer::Transformer(const TransformerOptions& o, Rng& rng, const MechanismFactory& mechanism) {
  require(o.layers >= 0, "Transformer: layers is ", o.layers, "; it must be 0 or more");
  blocks.reserve(static_cast<std::size_t>(o.layers));
  for (Index i = 0; i < o.layers; ++i) blocks.emplace_back(o, rng, mechanism(i, rng));
  if (o.norm_first) norm.emplace(o.norm, o.width, o.bias);
}

// h through all blocks by `apply(block, h, i)`, then the last norm.
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

std::vector<AttentionState> Transformer::make_states() const {
  std::vector<AttentionState> states;
  for (const TransformerBlock& block : blocks) states.push_back(block.attention.mechanism.make_state());
  return states;
}

Tensor Transformer::decode(In x, std::vector<AttentionState>& states, const AttentionCall& call) const {
  states.resize(blocks.size());
  return through(*this, x, [&](const TransformerBlock& b, In h, std::size_t i) { return b.decode(h, states[i], call); });
}

Tensor Transformer::decode(In x, In memory, std::vector<AttentionState>& states, const AttentionCall& call,
                           const AttentionCall& memory_call) const {
  states.resize(blocks.size());
  return through(*this, x, [&](const TransformerBlock& b, In h, std::size_t i) {
    return b.decode(h, memory, states[i], call, memory_call);
  });
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

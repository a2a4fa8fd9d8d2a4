// Transformer blocks and stacks: calls and decoding.
#include <algorithm>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/reductions.hpp>
#include <heed/autograd/reversible.hpp>
#include <heed/autograd/shape_ops.hpp>
#include <heed/autograd/tape.hpp>
#include <heed/layers/attention/detail/row_lengths.hpp>
#include <heed/layers/model_config.hpp>
#include <heed/layers/transformer.hpp>

namespace heed {

TransformerOptions TransformerOptions::or_else(double p, FeedForwardKind kind, bool first) const {
  TransformerOptions o = *this;
  o.dropout = dropout.value_or(p), o.activation = activation.value_or(kind), o.norm_first = norm_first.value_or(first);
  return o;
}

TransformerOptions TransformerOptions::with_positions(PositionKind positions) const {
  TransformerOptions o = *this;
  if (positions == PositionKind::rope) o.attention.rope = true;
  if (positions == PositionKind::relative && o.attention.relative_clip == 0) o.attention.relative_clip = 16;
  return o;
}

static TransformerOptions settled(const TransformerOptions& o) { return o.or_else(0.1, FeedForwardKind::relu, false); }

static MultiHeadAttentionOptions self_options(const TransformerOptions& o, const AttentionMechanism& mechanism) {
  MultiHeadAttentionOptions a = o.attention;
  a.memory_width = 0;
  a.dropout = mechanism.capabilities().dropout ? a.dropout.value_or(*o.dropout) : 0;
  return a;
}

static MultiHeadAttentionOptions cross_options(const TransformerOptions& o, const AttentionMechanism& mechanism) {
  MultiHeadAttentionOptions a = self_options(o, mechanism);
  a.memory_width = o.attention.memory_width;
  a.rope = false, a.relative_clip = 0;
  return a;
}

TransformerBlock::TransformerBlock(const TransformerOptions& given, Rng& rng, AttentionMechanism mechanism,
                                   AttentionMechanism cross_mechanism)
    : options_(settled(given)),
      norm1(options_.norms(), options_.attention.width),
      attention(self_options(options_, mechanism), rng, std::move(mechanism)),
      norm2(options_.norms(), options_.attention.width),
      mlp(options_.attention.width, rng,
          {.hidden = options_.hidden,
           .activation = *options_.activation,
           .dropout = *options_.dropout,
           .bias = options_.attention.bias}),
      drop{*options_.dropout} {
  const TransformerOptions& o = options_;
  require(!o.post_norms || (*o.norm_first && o.attention.memory_width == 0), "TransformerBlock: post_norms requires ",
          "norm_first and no memory");
  require(!o.reversible || (*o.norm_first && o.attention.memory_width == 0), "TransformerBlock: reversible requires ",
          "norm_first and no memory");
  for (std::optional<Norm>* norm : {&post_norm1, &post_norm2})
    if (o.post_norms) norm->emplace(o.norms(), o.attention.width);
  if (o.attention.memory_width == 0) return;
  norm_cross.emplace(o.norms(), o.attention.width);
  const MultiHeadAttentionOptions of_memory = cross_options(o, cross_mechanism);
  cross.emplace(of_memory, rng, std::move(cross_mechanism));
}

// Applies the parts in order, each with its residual and norm. The feed-forward part has its own dropout.
template <class Self>
Tensor TransformerBlock::run(In x, const Self& self_part, const ProjectedMemory* memory,
                             const AttentionCall& memory_call, Tensor* weights) const {
  check(cross.has_value() == (memory != nullptr), x.where(), "TransformerBlock: this block ",
        cross ? "attends to a memory; call it with one"
              : "has no cross-attention; set memory_width, or call it without a memory");
  const auto cross_part = [&](In h) {
    if (weights != nullptr) *weights = cross->weights(h, *memory, memory_call);
    return (*cross)(h, *memory, memory_call);
  };
  if (*options_.norm_first) {
    Tensor h = x + attention_part(x, self_part);
    if (cross) h = h + drop(cross_part((*norm_cross)(h)));
    return h + feed_forward_part(h);
  }
  Tensor h = norm1(x + drop(self_part(x)));
  if (cross) h = (*norm_cross)(h + drop(cross_part(h)));
  return norm2(h + mlp(h));
}

Tensor TransformerBlock::feed_forward_part(In x) const {
  const Tensor y = mlp(norm2(x), norm2.recomputed(x.tensor()));
  return post_norm2 ? (*post_norm2)(y) : y;
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

Tensor TransformerBlock::operator()(In x, const AttentionCall& call) const {
  return run(x, [&](In h) { return attention(h, causal_too(call, options_.causal)); });
}

Tensor TransformerBlock::operator()(In x, const ProjectedMemory& memory, const AttentionCall& call,
                                    const AttentionCall& memory_call, Tensor* weights) const {
  const auto self_part = [&](In h) { return attention(h, causal_too(call, options_.causal)); };
  return run(x, self_part, &memory, memory_call, weights);
}

Tensor TransformerBlock::weights(In x, const AttentionCall& call) const {
  return attention.weights(*options_.norm_first ? In(norm1(x), x.where()) : x, causal_too(call, options_.causal));
}

Tensor TransformerBlock::decode(In x, AttentionState& state, const AttentionCall& call) const {
  return run(x, [&](In h) { return attention.decode(h, state, call); });
}

// Sets first_query for rows that have seen `seen` positions, for mechanisms that align queries and keys by position.
static AttentionCall call_after(AttentionCall call, const Tensor& seen) {
  if (seen.numel() > 0) call.first_query = call.first_query.defined() ? call.first_query + seen : seen;
  return call;
}

Tensor TransformerBlock::decode(In x, AttentionState& state, const ProjectedMemory& memory, const AttentionCall& call,
                                const AttentionCall& memory_call) const {
  const AttentionCall of_memory = call_after(memory_call, state.lengths());
  return run(
      x, [&](In h) { return attention.decode(h, state, call); }, &memory, of_memory);
}

Transformer::Transformer(const TransformerOptions& o, Rng& rng, const MechanismFactory& mechanism,
                         const MechanismFactory& cross_mechanism)
    : reversible_(o.reversible) {
  require(o.layers >= 0, "Transformer: layers is ", o.layers, "; it must be 0 or more");
  blocks.reserve(static_cast<std::size_t>(o.layers));
  for (Index i = 0; i < o.layers; ++i) {
    AttentionMechanism own = mechanism(i, rng);
    if (o.attention.memory_width > 0)
      blocks.emplace_back(o, rng, std::move(own), cross_mechanism(i, rng));
    else
      blocks.emplace_back(o, rng, std::move(own));
  }
  if (*settled(o).norm_first) norm.emplace(o.norms(), o.attention.width);
}

// Passes x through all blocks by apply(block, h, i), then through the last norm.
template <class Apply>
static Tensor through(const Transformer& model, In x, const Apply& apply) {
  Tensor h = x;
  for (std::size_t i = 0; i < model.blocks.size(); ++i) h = apply(model.blocks[i], In(h, x.where()), i);
  return model.norm ? (*model.norm)(In(h, x.where())) : h;
}

// The blocks as f and g of reversible(), which may call them in backward: attend(block, h, i) is captured by value.
template <class Attend>
Tensor Transformer::run_reversible(In x, const Attend& attend) const {
  std::vector<ReversibleBlock> parts;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const TransformerBlock& b = blocks[i];
    const auto attend_here = [&b, attend, i](In h) { return attend(b, h, i); };
    parts.push_back({[&b, attend_here, where = x.where()](const Tensor& h) {
                       return b.attention_part({h, where}, attend_here);
                     },
                     [&b, where = x.where()](const Tensor& h) {
                       return b.feed_forward_part({h, where});
                     }});
  }
  const Tensor y = mean(reversible(parts, x, x), 0);
  return norm ? (*norm)(In(y, x.where())) : y;
}

Tensor Transformer::operator()(In x, const AttentionCall& call) const {
  if (reversible_)
    return run_reversible(x, [call](const TransformerBlock& b, In h, std::size_t) {
      return b.attention(h, causal_too(call, b.options().causal));
    });
  return through(*this, x, [&](const TransformerBlock& b, In h, std::size_t) {
    if (!recomputes) return b(h, call);
    return recompute([&b, call](const std::vector<Tensor>& inputs) { return b(inputs[0], call); }, {h}, h.where());
  });
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
    return b(h, b.project(memory), call, memory_call, &weights[i]);
  });
  return weights;
}

std::vector<Tensor> Transformer::weights(In x, const AttentionCall& call) const {
  const NoTape no_tape;
  const Evaluation evaluation;
  std::vector<Tensor> weights;
  if (reversible_) {
    run_reversible(x, [&weights, call](const TransformerBlock& b, In h, std::size_t) {
      const AttentionCall of_block = causal_too(call, b.options().causal);
      weights.push_back(b.attention.weights(h, of_block));
      return b.attention(h, of_block);
    });
    return weights;
  }
  through(*this, x, [&](const TransformerBlock& b, In h, std::size_t) {
    weights.push_back(b.weights(h, call));
    return b(h, call);
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

static void check_states(const Transformer& model, In x, std::size_t self, std::size_t memory) {
  check(self == model.blocks.size() && memory == model.blocks.size(), x.where(), "Transformer: the state has ", self,
        " blocks and the model has ", model.blocks.size(), "; create the state with make_state()");
}

Tensor Transformer::decode(In x, TransformerState& state, const AttentionCall& call) const {
  if (state.memory.empty()) return decode(x, state.self, call);
  check_states(*this, x, state.self.size(), state.memory.size());
  return through(*this, x, [&](const TransformerBlock& b, In h, std::size_t i) {
    return b.decode(h, state.self[i], state.memory[i], call, state.memory_call);
  });
}

Tensor Transformer::decode(In x, std::vector<AttentionState>& states, const AttentionCall& call) const {
  check_states(*this, x, states.size(), states.size());
  if (reversible_)
    return run_reversible(x, [&states, call](const TransformerBlock& b, In h, std::size_t i) {
      return b.attention.decode(h, states[i], call);
    });
  return through(*this, x,
                 [&](const TransformerBlock& b, In h, std::size_t i) { return b.decode(h, states[i], call); });
}

TransformerState TransformerState::rows(const Tensor& indices) const {
  TransformerState picked{pick_rows(self, indices), memory, memory_call};
  if (sources.defined()) picked.sources = index_select(sources, 0, indices);
  const bool in_place = sources.defined() && picked.sources.numel() == sources.numel() &&
                        std::ranges::equal(detail::row_lengths(picked.sources), detail::row_lengths(sources));
  if (in_place) return picked;
  picked.memory = pick_rows(memory, indices), picked.memory_call = pick_rows(memory_call, indices);
  return picked;
}

void TransformerOptions::fields(OptionFields& f, PositionKind positions) {
  if (!f.lists())  // a file does not depend on defaults
    attention.relative_clip = with_positions(positions).attention.relative_clip;
  attention.fields(f);
  f("hidden", hidden), f({"dropout", "Share of activations dropped in training"}, *dropout);
  f({"activation", "Activation of the feed-forward part"}, *activation, feed_forward_kinds());
  f({"norm", "Normalisation"}, norm, norm_kinds());
  f.optional("post_norms", post_norms);
  f.optional({"reversible", "Two residual streams per block, so that activations need memory of one block only"},
             reversible);
}

void TransformerBlock::members(MemberVisitor& visit) {
  visit("norm1", norm1);
  visit("attention", attention);
  visit("norm_cross", norm_cross);
  visit("cross", cross);
  visit("norm2", norm2);
  visit("mlp", mlp);
  visit("post_norm1", post_norm1);
  visit("post_norm2", post_norm2);
}

void Transformer::members(MemberVisitor& visit) {
  visit("blocks", blocks);
  visit("norm", norm);
}

}  // namespace heed

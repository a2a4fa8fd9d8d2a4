// GPT: construction, forward pass, decoding, and estimates of memory and work.
#include <cmath>
#include <heed/autograd/losses.hpp>
#include <heed/layers/attention/detail/row_lengths.hpp>
#include <heed/layers/gpt.hpp>

namespace heed {

static TransformerOptions block_options(const GPTOptions& o) {
  return {.width = o.width,
          .heads = o.heads,
          .kv_heads = o.kv_heads,
          .key_size = o.key_size,
          .value_size = o.value_size,
          .hidden = o.hidden,
          .layers = o.layers,
          .dropout = o.dropout,
          .activation = o.activation,
          .norm = o.norm,
          .norm_first = true,
          .bias = o.bias,
          .rope = o.rope || o.positions == PositionKind::rope,
          .qk_norm = o.qk_norm,
          .relative_clip = o.positions == PositionKind::relative ? o.relative_clip : 0,
          .causal = o.causal};
}

// Parts are made without values, except those of mechanisms, because init_weights() sets the values.
GPT::GPT(const GPTOptions& o, Rng& rng, const MechanismFactory& mechanism)
    : tokens(skip_init<Embedding>(o.vocabulary, o.width, rng)),
      norm(o.norm, o.width),
      drop{o.dropout},
      options_(o),
      mechanism_factory_(mechanism) {
  require(o.layers >= 0 && o.context > 0, "GPT: layers is ", o.layers, " and context is ", o.context,
          "; layers must be 0 or more and context 1 or more");
  require(o.positions != PositionKind::relative || o.relative_clip > 0, "GPT: relative_clip is ", o.relative_clip,
          "; it must be 1 or more");
  if (o.positions == PositionKind::learned) positions = skip_init<LearnedPositions>(o.context, o.width, rng);
  if (o.positions == PositionKind::sinusoidal) sinusoids_.emplace(o.context, o.width);
  if (!o.tied) output = Parameter(Tensor::empty({o.vocabulary, o.width}));
  for (Index i = 0; i < o.layers; ++i)
    blocks.push_back(skip_init<TransformerBlock>(block_options(o), rng, mechanism(i, rng)));
  init_weights([&](const std::string&) -> Rng& { return rng; });
}

void GPT::init_weights(const std::function<Rng&(const std::string& name)>& rng_for) {
  const double residual = 0.02 / std::sqrt(2.0 * static_cast<double>(std::max<Index>(1, options_.layers)));
  for (const NamedParameter& p : named_parameters(*this)) {
    if (p.name.find(".mechanism.") != std::string::npos || p.name.find("norm") != std::string::npos) continue;
    const bool before_sum = p.name.ends_with("proj.weight") || p.name.ends_with("down.weight");
    if (p.name.ends_with(".bias") || (before_sum && options_.zero_init_residual))
      init::constant_(*p.parameter, 0);
    else
      init::normal_(*p.parameter, rng_for(p.name), 0, before_sum ? residual : 0.02);
  }
  for (TransformerBlock& block : blocks) block.attention.set_input_biases();
}

// Embeds x, whose rows follow `seen` positions, int32 [B] or [0].
Tensor GPT::embed_after(In x, const Tensor& seen, const AttentionCall& call) const {
  check(x.rank() == 2 && x.dtype() == DType::int32, x.where(), "GPT: x is ", x.tensor(),
        "; it must be int32 [batch, positions]");
  const Index end = detail::end_of_rows("GPT", seen, x, call), context = options_.context;
  check(!bounded() || end <= context, x.where(), "GPT: x reaches position ", end, " but the model's context is ",
        context);
  Tensor h = tokens(x);
  if (!bounded()) return drop(h);
  const auto at = [&](Index first, Index count) {
    return positions ? (*positions)(count, first, x.where()) : (*sinusoids_)(count, first, h.dtype(), x.where());
  };
  const auto of_places = [&](const Tensor& places) {
    return positions ? (*positions)(places) : (*sinusoids_)(places, h.dtype());
  };
  return drop(h + detail::at_positions(x, seen, context, at, of_places));
}

Tensor GPT::embed(In x) const { return embed_after(x, Tensor::zeros({0}, DType::int32), {}); }

Tensor GPT::hidden(In x, const AttentionCall& call) const {
  Tensor h = embed(x);
  for (const TransformerBlock& block : blocks) h = block(In(h, x.where()), call);
  return norm(h);
}

Tensor GPT::operator()(In x, const AttentionCall& call) const {
  return linear(hidden(x, call), output_weight(), Tensor());
}

Tensor GPT::loss(In x, In y, const AttentionCall& call) const {
  check(x.shape() == y.shape(), x.where(), "GPT: x is ", x.tensor(), " and y is ", y.tensor(),
        "; the shapes must be the same");
  return linear_cross_entropy(hidden(x, call), output_weight(), Tensor(), y);
}

Tensor GPT::decode(In x, std::vector<AttentionState>& states, const AttentionCall& call) const {
  check(options_.causal, x.where(),
        "GPT: this model is not causal: positions see later positions, so it cannot continue a text");
  check(!blocks.empty() || !bounded(), x.where(),
        "GPT: layers is 0, but decode() reads the position from the states of layers; layers must be 1 or more, or "
        "positions rope");
  states.resize(blocks.size());
  Tensor h = embed_after(x, states.empty() ? Tensor::zeros({0}, DType::int32) : states.front().lengths(), call);
  for (std::size_t i = 0; i < blocks.size(); ++i) h = blocks[i].decode(In(h, x.where()), states[i], call);
  return linear(norm(detail::last_of_rows(h, call)), output_weight(), Tensor());
}

std::vector<AttentionState> GPT::make_states() const {
  std::vector<AttentionState> states;
  for (const TransformerBlock& block : blocks) states.push_back(block.attention.mechanism.make_state());
  return states;
}

std::vector<Tensor> GPT::attention_weights(In x) const {
  const NoTape no_tape;
  const Evaluation evaluation;
  std::vector<Tensor> weights;
  Tensor h = embed(x);
  for (const TransformerBlock& block : blocks) {
    weights.push_back(block.attention.weights({block.norm1(h), x.where()}, {.causal = options_.causal}));
    h = block(In(h, x.where()));
  }
  return weights;
}

ActivationBytes GPT::predict_activations(Index batch, Index length) const {
  named_parameters(const_cast<GPT&>(*this));  // sets the paths of the parameters
  return heed::predict_activations(
      [&](Index rows) {
        const Tensor x = Tensor::zeros({rows, length}, DType::int32);
        return loss(x, x);
      },
      batch);
}

double GPT::flops_per_token(Index length) const {
  double weights = 0;
  for (const NamedParameter& p : named_parameters(const_cast<GPT&>(*this)))
    if (p.name != "positions.weight" && !p.name.ends_with("relative.weight"))
      weights += static_cast<double>(p.parameter->numel());
  double products = 0;
  for (const TransformerBlock& block : blocks) {
    const MultiHeadAttentionOptions& o = block.attention.options();
    products += static_cast<double>(o.heads * (o.key_size + o.value_size)) *
                block.attention.mechanism.keys_per_query(length, o.key_size);
  }
  return 6 * (weights + products);
}

void GPT::members(MemberVisitor& visit) {
  visit("tokens", tokens);
  visit("positions", positions);
  visit("blocks", blocks);
  visit("norm", norm);
  visit.table("output", output);
}

}  // namespace heed

#include <cmath>
#include <heed/autograd/losses.hpp>
#include <heed/layers/gpt.hpp>

namespace heed {

static TransformerOptions block_options(const GPTOptions& o) {
  return {.width = o.width,
          .heads = o.heads,
          .kv_heads = o.kv_heads,
          .hidden = o.hidden,
          .layers = o.layers,
          .dropout = o.dropout,
          .activation = o.activation,
          .norm = o.norm,
          .norm_first = true,
          .bias = o.bias,
          .rope = o.positions == PositionKind::rope,
          .relative_clip = o.positions == PositionKind::relative ? o.relative_clip : 0,
          .causal = o.causal};
}

GPT::GPT(const GPTOptions& o, Rng& rng, const MechanismFactory& mechanism)
    : tokens(o.vocabulary, o.width, rng),
      norm(o.norm, o.width),
      drop{o.dropout},
      options_(o),
      mechanism_factory_(mechanism) {
  require(o.layers >= 0 && o.context > 0, "GPT: layers is ", o.layers, " and context is ", o.context,
          "; they must be 0 or more and 1 or more");
  require(o.positions != PositionKind::relative || o.relative_clip > 0, "GPT: relative_clip is ", o.relative_clip,
          "; it must be 1 or more");
  if (o.positions == PositionKind::learned) positions.emplace(o.context, o.width, rng);
  if (o.positions == PositionKind::sinusoidal) sinusoids_.emplace(o.context, o.width);
  if (!o.tied) output = Parameter(Tensor::empty({o.vocabulary, o.width}));
  for (Index i = 0; i < o.layers; ++i) blocks.emplace_back(block_options(o), rng, mechanism(i, rng));

  const double residual = 0.02 / std::sqrt(2.0 * static_cast<double>(std::max<Index>(1, o.layers)));
  for (const NamedParameter& p : named_parameters(*this)) {
    if (p.name.find(".mechanism.") != std::string::npos || p.name.find("norm") != std::string::npos) continue;
    const bool before_sum = p.name.ends_with("proj.weight") || p.name.ends_with("down.weight");
    if (p.name.ends_with(".bias"))
      init::constant_(*p.parameter, 0);
    else
      init::normal_(*p.parameter, rng, 0, before_sum ? residual : 0.02);
  }
}

Tensor GPT::embed(In x, Index offset) const {
  check(x.rank() == 2 && x.dtype() == DType::int32, x.where(), "GPT: x is ", x.tensor(),
        "; it must be int32 [batch, positions]");
  const Index end = offset + x.dim(1);
  check(!bounded() || end <= options_.context, x.where(), "GPT: x reaches position ", end,
        " but the model's context is ", options_.context);
  Tensor h = tokens(x);
  if (positions) h = h + (*positions)(x.dim(1), offset, x.where());
  if (sinusoids_) h = h + (*sinusoids_)(x.dim(1), offset, h.dtype(), x.where());
  return drop(h);
}

Tensor GPT::hidden(In x, const AttentionCall& call) const {
  Tensor h = embed(x, 0);
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

Tensor GPT::decode(In x, std::vector<AttentionState>& states) const {
  check(options_.causal, x.where(),
        "GPT: this model is not causal: each position sees those behind it, so that text cannot go on from it");
  check(
      !blocks.empty() || !bounded(), x.where(),
      "GPT: layers is 0, and decode() knows the position by their states; layers must be 1 or more, or positions rope");
  states.resize(blocks.size());
  const Index offset = states.empty() ? 0 : states.front().length();
  Tensor h = embed(x, offset);
  for (std::size_t i = 0; i < blocks.size(); ++i) h = blocks[i].decode(In(h, x.where()), states[i]);
  const Tensor last = norm(h.select(1, h.dim(1) - 1));
  return linear(last, output_weight(), Tensor());
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
  Tensor h = embed(x, 0);
  for (const TransformerBlock& block : blocks) {
    weights.push_back(block.attention.weights({block.norm1(h), x.where()}, {.causal = options_.causal}));
    h = block(In(h, x.where()));
  }
  return weights;
}

ActivationBytes GPT::predict_activations(Index batch, Index length) const {
  named_parameters(const_cast<GPT&>(*this));  // gives the parameters their paths
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
  double keys = 0;
  for (const TransformerBlock& block : blocks)
    keys += block.attention.mechanism.keys_per_query(length, options_.width / options_.heads);
  return 6 * weights + 12 * static_cast<double>(options_.width) * keys;
}

void GPT::members(MemberVisitor& visit) {
  visit("tokens", tokens);
  visit("positions", positions);
  visit("blocks", blocks);
  visit("norm", norm);
  visit("output", output);
}

}  // namespace heed

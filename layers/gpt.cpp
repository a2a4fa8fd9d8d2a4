// GPT: construction, forward pass, decoding, and estimates of memory and work.
#include <cmath>
#include <heed/autograd/losses.hpp>
#include <heed/layers/attention/detail/row_lengths.hpp>
#include <heed/layers/gpt.hpp>

namespace heed {

GPTOptions GPTOptions::settled() const {
  GPTOptions o = *this;
  o.blocks = blocks.or_else(0, FeedForwardKind::gelu, true);
  o.blocks.causal = causal;
  return o;
}

static GPTOptions checked(const GPTOptions& o) {
  require(o.blocks.layers >= 0 && o.context > 0, "GPT: layers is ", o.blocks.layers, " and context is ", o.context,
          "; layers must be 0 or more and context 1 or more");
  require(o.logit_cap >= 0 && std::isfinite(o.logit_cap), "GPT: logit_cap is ", o.logit_cap,
          "; it must be 0 or more, and finite");
  return o.settled();
}

// Mechanisms get initial values, unlike the other parts, whose values are set by init_weights().
static MechanismFactory with_values(const MechanismFactory& make) {
  return [&make](Index layer, Rng& rng) {
    const detail::SkipInit fills(false);
    return make(layer, rng);
  };
}

OutputTransform::OutputTransform(const GPTOptions& o, Rng& rng)
    : dense(o.blocks.attention.width, o.blocks.attention.width, rng),
      activation(o.blocks.activation.value_or(FeedForwardKind::gelu)),
      norm(o.blocks.norms(), o.blocks.attention.width) {}

static std::optional<NormLayerOptions> input_norm(const GPTOptions& o) {
  return o.input_norm ? std::optional(o.blocks.norms()) : std::nullopt;
}

GPT::GPT(const GPTOptions& o, Rng& rng, const MechanismFactory& mechanism)
    : options_(checked(o)),
      mechanism_factory_(mechanism),
      input(skip_init<TokenInput>(TokenInputOptions{.vocabulary = o.vocabulary,
                                                    .context = o.context,
                                                    .width = o.blocks.attention.width,
                                                    .positions = o.positions,
                                                    .dropout = *options_.blocks.dropout,
                                                    .scaled = o.scaled_embedding,
                                                    .token_types = o.token_types,
                                                    .norm = input_norm(o),
                                                    .name = "GPT"},
                                  rng)),
      transformer(skip_init<Transformer>(options_.blocks.with_positions(o.positions), rng, with_values(mechanism))) {
  const Index width = o.blocks.attention.width;
  NormLayerOptions last = o.blocks.norms();
  last.bias = true;
  if (transformer.norm) transformer.norm.emplace(last, width);
  if (!o.tied) output = Parameter(Tensor::empty({o.vocabulary, width}));
  if (o.output_transform) transform.emplace(skip_init<OutputTransform>(o, rng));
  if (o.output_bias) output_bias = Parameter(Tensor::zeros({o.vocabulary}));
  init_weights([&](const std::string&) -> Rng& { return rng; });
}

void GPT::init_weights(const std::function<Rng&(const std::string& name)>& rng_for) {
  const double residual = 0.02 / std::sqrt(2.0 * static_cast<double>(std::max<Index>(1, options_.blocks.layers)));
  for (const NamedParameter& p : named_parameters(*this)) {
    if (p.name.find(".mechanism.") != std::string::npos || p.name.find("norm") != std::string::npos) continue;
    const bool before_sum = p.name.ends_with("proj.weight") || p.name.ends_with("down.weight");
    if (p.name.ends_with("bias") || (before_sum && options_.zero_init_residual))
      init::constant_(*p.parameter, 0);
    else
      init::normal_(*p.parameter, rng_for(p.name), 0, before_sum ? residual : 0.02);
  }
  for (TransformerBlock& block : transformer.blocks) block.attention.set_input_biases();
}

Tensor GPT::hidden(In x, const AttentionCall& call, const Tensor& token_types) const {
  const Tensor h = input(x, Tensor::zeros({0}, DType::int32), {.documents = call.documents}, token_types);
  return transformer({h, x.where()}, call);
}

Tensor GPT::transformed(const Tensor& h) const { return transform ? (*transform)(h) : h; }

Tensor GPT::logits_of(In h) const {
  const Tensor logits = linear({transformed(h), h.where()}, output_weight(), output_bias);
  const double cap = options_.logit_cap;
  return cap > 0 ? tanh(logits / cap) * cap : logits;
}

Tensor GPT::loss_of(In h, In y) const {
  if (options_.logit_cap > 0) return cross_entropy({logits_of(h), h.where()}, y);
  return linear_cross_entropy({transformed(h), h.where()}, output_weight(), output_bias, y);
}

Tensor GPT::operator()(In x, const AttentionCall& call) const { return logits_of({hidden(x, call), x.where()}); }

Tensor GPT::loss(In x, In y, const AttentionCall& call) const {
  check(x.shape() == y.shape(), x.where(), "GPT: x is ", x.tensor(), " and y is ", y.tensor(),
        "; the shapes must be the same");
  return loss_of({hidden(x, call), x.where()}, y);
}

Tensor GPT::decode(In x, std::vector<AttentionState>& states, const AttentionCall& call) const {
  check(options_.causal, x.where(),
        "GPT: this model is not causal: positions see later positions, so it cannot continue a text");
  check(!transformer.blocks.empty() || !input.bounded(), x.where(),
        "GPT: layers is 0, but decode() reads the position from the states of layers; layers must be 1 or more, or "
        "positions rope");
  states.resize(transformer.blocks.size());
  const Tensor h = states.empty() ? input(x) : input(x, states.front().lengths(), call);
  const Tensor y = transformer.decode({h, x.where()}, states, call);
  return logits_of(detail::last_of_rows(y, call));
}

std::vector<AttentionState> GPT::make_states() const { return transformer.make_state().self; }

std::vector<Tensor> GPT::attention_weights(In x, const Tensor& token_types) const {
  const NoTape no_tape;
  const Evaluation evaluation;
  return transformer.weights({input(x, Tensor::zeros({0}, DType::int32), {}, token_types), x.where()});
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
    if (p.name != "positions.weight" && p.name != "types.weight" && !p.name.ends_with("relative.weight"))
      weights += static_cast<double>(p.parameter->numel());
  double products = 0;
  for (const TransformerBlock& block : transformer.blocks) {
    const MultiHeadAttentionOptions& o = block.attention.options();
    products += static_cast<double>(o.heads * (o.key_size + o.value_size)) *
                block.attention.mechanism.keys_per_query(length, o.key_size);
  }
  return 6 * (weights + products);
}

void GPT::members(MemberVisitor& visit) {
  input.members(visit);
  transformer.members(visit);
  visit("transform", transform);
  visit.table("output", output);
  visit("output_bias", output_bias);
}

NextSentence::NextSentence(Index width, Rng& rng)
    : pooler(skip_init<Linear>(width, width, rng)), output(skip_init<Linear>(width, Index{2}, rng)) {
  for (Linear* layer : {&pooler, &output}) {
    init::normal_(layer->weight, rng, 0, 0.02);
    init::constant_(layer->bias, 0);
  }
}

Tensor NextSentence::pooled(In hidden) const {
  check(hidden.rank() == 3 && hidden.dim(1) > 0, hidden.where(), "NextSentence: hidden is ", hidden.tensor(),
        "; it must be [batch, positions, width], with 1 position or more");
  return tanh(pooler({hidden->select(1, 0), hidden.where()}));
}

}  // namespace heed

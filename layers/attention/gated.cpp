// Mechanisms with gates and delta rules: convolutions before the rule, the inputs of gated_attention(), norm and output
// gate after it, and the decode state.
#include <cmath>
#include <heed/autograd/detail/attention_inputs.hpp>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/norms.hpp>
#include <heed/autograd/shape_ops.hpp>
#include <heed/layers/attention/detail/row_lengths.hpp>
#include <heed/layers/attention/gated.hpp>
#include <heed/layers/attention/states.hpp>
#include <heed/layers/embedding.hpp>

namespace heed {
namespace {

constexpr double kNormEps = 1e-5;  // of the norm after the rule

bool has_delta(StateRule rule) {
  return rule == StateRule::delta || rule == StateRule::gated_delta || rule == StateRule::kda;
}
bool has_channels(StateRule rule) { return rule == StateRule::gla || rule == StateRule::kda; }
bool has_decay(StateRule rule) {
  return rule == StateRule::ssd || rule == StateRule::gated_delta || rule == StateRule::kda;
}
bool has_gate(StateRule rule) { return has_decay(rule) || rule == StateRule::gla; }

std::string name_of(StateRule rule) {
  switch (rule) {
    case StateRule::retention: return "retention";
    case StateRule::ssd: return "ssd";
    case StateRule::gla: return "gla";
    case StateRule::delta: return "delta";
    case StateRule::gated_delta: return "gated-delta";
    default: return "kda";
  }
}

// A convolution over the positions of each channel. Undefined weight: none.
struct Taps {
  Tensor weight, bias;  // [heads * size, 1, window], [heads * size] or undefined

  explicit Taps(const std::optional<Conv1d>& layer) {
    if (layer) weight = layer->weight, bias = layer->bias;
  }
  Index past() const { return weight.dim(2) - 1; }  // positions that a step reads of the steps before
  // SiLU of the convolution of x [B, H, T, D].
  Tensor operator()(const Tensor& x, const Tensor& documents = {}) const {
    const Conv1dOptions o{.groups = weight.dim(0), .causal = true, .documents = documents};
    return split_heads(silu(conv1d(merge_heads(x).t(), weight, bias, o).t()), x.dim(1));
  }
};

// A rule with its parameters, for layers and states.
struct Rule {
  StateRule rule;
  StateAttentionOptions options;
  Tensor decay, gate_bias, skip, norm;  // as in StateAttention, or undefined
  Taps q_conv, k_conv, v_conv;

  explicit Rule(const StateAttention& of)
      : rule(of.rule()),
        options(of.options()),
        decay(of.decay),
        gate_bias(of.gate_bias),
        skip(of.skip),
        norm(of.norm),
        q_conv(of.q_conv),
        k_conv(of.k_conv),
        v_conv(of.v_conv) {}
  bool convolves() const { return options.convolution > 1; }
};

// The inputs of gated_attention(), per value head.
struct Terms {
  Tensor q, k, v;
  GatedAttentionOptions options;
  Tensor added;  // of ssd: D v; otherwise undefined
};

// log(1 - 2^(-5 - h)) for each value head: [heads, 1].
Tensor retention_gates(Index heads, DType type) {
  Tensor gate = Tensor::empty({heads, 1}, DType::float64);
  for (Index h = 0; h < heads; ++h) gate.ptr<double>()[h] = std::log1p(-std::exp2(-5.0 - static_cast<double>(h)));
  return gate.to(type);
}

// x rsqrt(sum(x^2) + 1e-6) for the rows of x [B, H, T, D], as an RMSNorm, in the order of memory [B, T, H, D].
Tensor unit(const Tensor& x) {
  const auto size = static_cast<double>(x.dim(3));
  const Tensor weight = Tensor::full({x.dim(3)}, 1 / std::sqrt(size), x.dtype());
  return rms_norm(x.transpose(1, 2), weight, 1e-6 / size).transpose(1, 2);
}

// x [B, H, T, n * size] as [B, H * n, T, size].
Tensor to_value_heads(const Tensor& x, Index n) {
  if (n == 1) return x;
  const Index size = x.dim(3) / n;
  return x.reshape({x.dim(0), x.dim(1), x.dim(2), n, size})
      .transpose(2, 3)
      .reshape({x.dim(0), x.dim(1) * n, x.dim(2), size});
}

bool has_padding(const AttentionCall& call) { return call.key_lengths.defined() || call.key_mask.defined(); }

// q, k and v after their convolutions, without padding, which may hold NaN.
Terms convolved(const Rule& of, In q, In k, In v, const AttentionCall& call) {
  const auto clear = [&](const Tensor& x) { return without_padding({x, q.where()}, call); };
  if (!of.convolves()) return {q, clear(k), clear(v), {}, {}};
  const Tensor& documents = call.documents;
  // A convolution mixes the positions before padding into it, so keys and values are cleared again.
  return {of.q_conv(clear(q), documents),
          clear(of.k_conv(clear(k), documents)),
          clear(of.v_conv(clear(v), documents)),
          {},
          {}};
}

// Sets the gates, rates and scale of the terms, whose q, k and v are those of convolved().
Terms with_gates(const Rule& of, Terms t, const AttentionCall& call, std::span<const Tensor> inputs) {
  const StateRule rule = of.rule;
  const Index n = of.options.value_heads, heads = t.q.dim(1) * n;
  const auto clear = [&](const Tensor& x) { return without_padding(x, call); };
  // An input as one row per value head and position: [B, H, T] or, per channel, [B, H, T, K].
  const auto heads_of = [&](const Tensor& x, bool channels) {
    const Tensor y = to_value_heads(x, n);
    return channels ? y : y.squeeze(3);
  };
  const bool channels = has_channels(rule);
  t.options.documents = call.documents;
  t.v = to_value_heads(t.v, n);
  if (rule == StateRule::retention) t.options.log_gate = retention_gates(heads, t.q.dtype());
  Tensor gate;
  if (has_gate(rule))
    gate = heads_of(clear(inputs[0]) + of.gate_bias.view({t.q.dim(1), 1, inputs[0].dim(3)}), channels);
  if (rule == StateRule::gla) t.options.log_gate = softplus(-gate) * (-1.0 / 16);
  if (has_decay(rule)) {
    const Tensor step = softplus(gate), rate = -exp(of.decay.view({heads, 1}));
    t.options.log_gate = (channels ? rate.unsqueeze(2) : rate) * step;
    if (rule == StateRule::ssd) {
      t.options.scale = 1;
      t.added = of.skip.view({heads, 1, 1}) * t.v;
      t.v = t.v * step.unsqueeze(3);
    }
  }
  if (has_delta(rule)) {
    const auto direction = [&](const Tensor& x) { return unit(of.convolves() ? x : silu(x)); };
    t.q = direction(t.q), t.k = direction(t.k);
    t.options.beta = sigmoid(heads_of(clear(inputs[has_gate(rule) ? 1 : 0]), false));
    if (of.options.max_rate != 1) t.options.beta = t.options.beta * of.options.max_rate;
  }
  Tensor& log_gate = t.options.log_gate;
  if (!has_padding(call) || !log_gate.defined()) return t;
  if (rule == StateRule::retention) log_gate = log_gate.expand({t.v.dim(0), heads, t.v.dim(2)});
  log_gate = channels ? clear(log_gate) : clear(log_gate.unsqueeze(3)).squeeze(3);
  return t;
}

// The result of the rule y [B, value heads, T, V] with D v, norm and output gate: [B, H, T, Dv]. Computed in the order
// of memory [B, T, H, Dv].
Tensor finished(const Rule& of, const Tensor& y, const Tensor& added, std::span<const Tensor> inputs) {
  const StateAttentionOptions& o = of.options;
  Tensor x = (added.defined() ? y + added : y).transpose(1, 2);
  const bool of_group = of.rule == StateRule::ssd;  // the gate is before the norm
  if (o.norm && !of_group) x = rms_norm(x, of.norm, kNormEps);
  x = x.reshape({x.dim(0), x.dim(1), x.dim(2) / o.value_heads, o.value_heads * x.dim(3)});
  if (o.output_gate != OutputGate::none) {
    const Tensor gate = inputs.back().transpose(1, 2);
    x = x * (o.output_gate == OutputGate::silu ? silu(gate) : sigmoid(gate));
  }
  if (o.norm && of_group) x = rms_norm(x, of.norm, kNormEps);
  return x.transpose(1, 2);
}

// The last inputs of the convolutions, [B, H, window - 1, D or Dv]; undefined without convolutions.
struct PastInputs {
  Tensor q = {}, k = {}, v = {};
};

// Stores the state of each row, and the last inputs of the convolutions.
struct GatedState {
  Rule rule;
  Tensor sums = {};  // [B, value heads, D, V]
  PastInputs past = {};
  Tensor seen = Tensor::zeros({0}, DType::int32);

  Tensor apply(In q, In k, In v, const AttentionCall& call, std::span<const Tensor> inputs) {
    check(!call.bias.defined(), q.where(), "AttentionState: bias is ", call.bias,
          ", but this state has no scores of single pairs to add a bias to; it must be undefined");
    const NoTape guard;
    const Tensor after = detail::lengths_after("StateAttention", seen, k, call);
    const AttentionCall causal{.causal = true, .key_lengths = call.key_lengths};
    PastInputs next = past;  // an Error leaves the state unchanged
    const Terms t = with_gates(rule, continued(q, k, v, causal, next), causal, inputs);
    const Tensor y = gated_attention_step({t.q, q.where()}, t.k, t.v, sums, t.options);
    seen = after, past = next;
    return finished(rule, y, t.added, inputs);
  }
  Tensor lengths() const { return seen; }
  void members(auto&& visit) {
    visit.buffer("lengths", seen);
    visit.buffer("sums", sums);
    visit.buffer("past_q", past.q);
    visit.buffer("past_k", past.k);
    visit.buffer("past_v", past.v);
  }

 private:
  // As convolved(), after the inputs of the steps before, which are replaced by the last ones.
  Terms continued(In q, In k, In v, const AttentionCall& call, PastInputs& last) const {
    if (!rule.convolves()) return convolved(rule, q, k, v, call);
    const auto next = [&](const Taps& taps, In x, Tensor& before) {
      const Index n = taps.past();
      if (!before.defined()) before = Tensor::zeros(x.shape().with(2, n), x.dtype());
      const Tensor all = concatenate({before, without_padding(x, call)}, 2);
      const Tensor lengths =
          call.key_lengths.defined() ? call.key_lengths.dense() : Tensor::full({x.dim(0)}, x.dim(2), DType::int32);
      before = detail::rows_after(all, lengths, n).clone();
      return taps(all).slice(2, n, all.dim(2));
    };
    const Tensor queries = next(rule.q_conv, q, last.q), keys = next(rule.k_conv, k, last.k),
                 values = next(rule.v_conv, v, last.v);
    return {queries, without_padding({keys, q.where()}, call), without_padding({values, q.where()}, call), {}, {}};
  }
};

// log(e^x - 1), the inverse of softplus.
Tensor inverse_softplus(const Tensor& x) { return x + log(-expm1(-x)); }

StateAttentionOptions checked(StateAttentionOptions o, Index heads, Index size) {
  if (o.value_size == 0) o.value_size = o.value_heads * size;
  require(heads > 0 && size > 0, "StateAttention: heads is ", heads, " and size is ", size, "; both must be 1 or more");
  require(o.value_heads > 0 && o.value_size > 0 && o.value_size % o.value_heads == 0, "StateAttention: value_heads is ",
          o.value_heads, " and value_size is ", o.value_size,
          "; both must be 1 or more, and value_heads must divide value_size");
  require(o.convolution > 0 && o.gate_rank >= 0, "StateAttention: convolution is ", o.convolution, " and gate_rank is ",
          o.gate_rank, "; convolution must be 1 or more, and gate_rank 0 or more");
  require(o.max_rate > 0 && o.max_rate <= 2, "StateAttention: max_rate is ", o.max_rate,
          "; it must be above 0 and at most 2");
  return o;
}

}  // namespace

StateAttentionOptions StateAttentionOptions::published(StateRule rule, Exactly<Index> size) {
  StateAttentionOptions o{.norm = true};
  if (rule != StateRule::retention && rule != StateRule::gla) o.convolution = 4;
  o.output_gate = rule == StateRule::delta ? OutputGate::none
                  : rule == StateRule::kda ? OutputGate::sigmoid
                                           : OutputGate::silu;
  if (has_channels(rule)) o.gate_rank = rule == StateRule::gla ? 16 : Index(size);
  return o;
}

StateAttention::StateAttention(StateRule rule, Exactly<Index> heads, Exactly<Index> size, Rng& rng,
                               const StateAttentionOptions& given)
    : rule_(rule), heads_(heads), size_(size), options_(checked(given, heads, size)) {
  const StateAttentionOptions& o = options_;
  const Index all = heads_ * o.value_heads, gates = o.value_heads * (has_channels(rule) ? size_ : 1);
  if (has_decay(rule)) {
    decay = Parameter(log(rng.uniform({all}, 1, 16)));
    gate_bias = Parameter(inverse_softplus(exp(rng.uniform({heads_ * gates}, std::log(0.001), std::log(0.1)))));
  }
  if (rule == StateRule::gla) gate_bias = Parameter(Tensor::zeros({heads_ * gates}));
  if (rule == StateRule::ssd) skip = Parameter(Tensor::ones({all}));
  if (o.norm) norm = Parameter(Tensor::ones({rule == StateRule::ssd ? o.value_size : o.value_size / o.value_heads}));
  if (o.convolution == 1) return;
  const auto convolution = [&](std::optional<Conv1d>& layer, Index channels) {
    layer.emplace(channels, channels, o.convolution, rng,
                  Conv1dLayerOptions{.groups = channels, .bias = rule == StateRule::ssd, .causal = true});
  };
  convolution(q_conv, heads_ * size_), convolution(k_conv, heads_ * size_), convolution(v_conv, heads_ * o.value_size);
}

std::string StateAttention::name() const { return name_of(rule_); }

AttentionCapabilities StateAttention::capabilities() const {
  return {.causal = true,
          .causal_only = true,
          .key_mask = true,
          .documents = true,
          .state = true,
          .why = "its state holds sums over the positions so far, and no weights of single pairs"};
}

std::vector<MechanismInput> StateAttention::inputs() const {
  const StateAttentionOptions& o = options_;
  std::vector<MechanismInput> list;
  if (has_gate(rule_)) {
    const bool channels = has_channels(rule_);
    list.push_back({.name = "gate", .size = o.value_heads * (channels ? size_ : 1)});
    if (channels) list.back().rank = o.gate_rank;
  }
  if (has_delta(rule_)) list.push_back({.name = "rate", .size = o.value_heads});
  if (o.output_gate != OutputGate::none)
    list.push_back({.name = "output",
                    .size = o.value_size,
                    .of = MechanismInput::Of::queries,
                    .rank = rule_ == StateRule::kda ? o.gate_rank : 0});
  return list;
}

void StateAttention::check_arguments(In q, In k, In v, std::span<const Tensor> given) const {
  const std::string op = name() + " attention";
  const StateAttentionOptions& o = options_;
  detail::check_heads(op.c_str(), q, k, v);
  check(k.shape() == q.shape(), q.where(), op, ": q is ", q.tensor(), " and k is ", k.tensor(),
        "; they must have the same shape");
  const bool has_heads = has_gate(rule_) || o.convolution > 1;
  check(!has_heads || q.dim(1) == heads_, q.where(), op, ": q is ", q.tensor(),
        "; it must have the heads of the parameters, ", heads_);
  check(o.convolution == 1 || q.dim(3) == size_, q.where(), op, ": q is ", q.tensor(),
        "; its last axis must be that of the parameters, ", size_);
  const bool has_size = o.convolution > 1 || o.norm || o.output_gate != OutputGate::none;
  check(v.dim(3) % o.value_heads == 0 && (!has_size || v.dim(3) == o.value_size), q.where(), op, ": v is ", v.tensor(),
        has_size ? "; its last axis must be value_size, " : "; value heads must divide its last axis: ",
        has_size ? o.value_size : o.value_heads);
  const std::vector<MechanismInput> list = inputs();
  check(given.size() == list.size(), q.where(), op, ": ", given.size(), " inputs are given; there must be ",
        list.size());
  for (std::size_t i = 0; i < list.size(); ++i) {
    const Shape shape = q.shape().with(-1, list[i].size);
    check(given[i].shape() == shape, q.where(), op, ": q is ", q.tensor(), " and ", list[i].name, " is ", given[i],
          "; it must be ", shape);
  }
}

Tensor StateAttention::apply(In q, In k, In v, const AttentionCall& call, std::span<const Tensor> inputs) const {
  check_arguments(q, k, v, inputs);
  const Rule rule(*this);
  const Terms t = with_gates(rule, convolved(rule, q, k, v, call), call, inputs);
  return finished(rule, gated_attention({t.q, q.where()}, t.k, t.v, t.options), t.added, inputs);
}

AttentionState StateAttention::make_state() const { return AttentionState(GatedState{Rule(*this)}, inputs()); }

}  // namespace heed

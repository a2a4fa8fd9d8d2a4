// Mechanisms with gates and delta rules: convolutions before the rule, the inputs of gated_attention(), norm and output
// gate after it, and the decode state.
#include <cmath>
#include <heed/autograd/detail/attention_inputs.hpp>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/norms.hpp>
#include <heed/autograd/shape_ops.hpp>
#include <heed/core/kernels/elementwise/scalar_math.hpp>
#include <heed/layers/attention/detail/row_lengths.hpp>
#include <heed/layers/attention/gated.hpp>
#include <heed/layers/attention/states.hpp>
#include <heed/layers/embedding.hpp>

namespace heed {
namespace {

bool has_delta(StateRule rule) {
  return rule == StateRule::delta || rule == StateRule::gated_delta || rule == StateRule::kda;
}
bool has_channels(StateRule rule) { return rule == StateRule::gla || rule == StateRule::kda; }
bool has_decay(StateRule rule) {
  return rule == StateRule::ssd || rule == StateRule::gated_delta || rule == StateRule::kda;
}
bool has_gate(StateRule rule) { return has_decay(rule) || rule == StateRule::gla; }

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
  GatedAttentionOptions options = {};
  Tensor added = {};  // of ssd: D v; otherwise undefined
};

bool has_fixed_gates(StateRule rule) { return rule == StateRule::retention || rule == StateRule::lightning; }

// The logarithms of the decays of retention and lightning, per value head: [heads, 1].
Tensor fixed_gates(const Rule& of, Index heads, DType type) {
  const auto layer = static_cast<double>(of.options.layer), last = static_cast<double>(of.options.layers - 1);
  const double factor = of.options.layers == 0 ? 1 : 1 - layer / (last + 1e-5) + 1e-5;
  Tensor gate = Tensor::empty({heads, 1}, DType::float64);
  for (Index head = 0; head < heads; ++head) {
    const auto h = static_cast<double>(head);
    gate.ptr<double>()[head] = of.rule == StateRule::retention
                                   ? std::log1p(-std::exp2(-5.0 - h))
                                   : -scalar::exp2(-8 * (h + 1) / static_cast<double>(heads)) * factor;
  }
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

// ---- Several steps of a delta rule per position (options.householders = n) ----
// The op computes n T positions, n of them per token: the gate of the token is at the first, the query at the last.

// k and v, then those of the further steps, along the last axis: [B, H, T, n D] and [B, H, T, n Dv].
std::pair<Tensor, Tensor> with_steps(const Rule& of, In k, In v, std::span<const Tensor> inputs) {
  const Index more = of.options.householders - 1;
  if (more == 0) return {k, v};
  const Tensor& steps = inputs[has_gate(of.rule) ? 2 : 1];
  const Index keys = more * k.dim(3);
  return {concatenate({k, steps.slice(3, 0, keys)}, 3), concatenate({v, steps.slice(3, keys, steps.dim(3))}, 3)};
}

// x [B, H, T, n * size] as [B, H, T * n, size].
Tensor by_steps(const Tensor& x, Index n) {
  return n == 1 ? x : x.reshape({x.dim(0), x.dim(1), x.dim(2) * n, x.dim(3) / n});
}

// Gates [B, H, T] or [B, H, T, K] at the first of n steps, and 1 at the others.
Tensor at_first_step(const Tensor& log_gate, Index n) {
  const Tensor first = log_gate.unsqueeze(3);
  const Tensor all = concatenate({first, Tensor::zeros(first.shape().with(3, n - 1), first.dtype())}, 3);
  return all.reshape(log_gate.shape().with(2, log_gate.dim(2) * n));
}

// int32 [B, T] as in AttentionCall, for n times as many positions.
Tensor documents_of_steps(const Tensor& documents, Index n) {
  const Tensor begins = documents.dense();
  Tensor all = Tensor::empty({begins.dim(0), begins.dim(1) * n}, DType::int32);
  for (Index i = 0; i < all.numel(); ++i)
    all.ptr<std::int32_t>()[i] = begins.ptr<std::int32_t>()[i / n] * static_cast<std::int32_t>(n);
  return all;
}

// The terms of each position as terms of its n steps. The query is repeated, and only the last result is read.
Terms of_steps(Terms t, Index n) {
  if (n == 1) return t;
  const Shape q = t.q.shape();
  t.q = t.q.unsqueeze(3).expand({q[0], q[1], q[2], n, q[3]}).reshape(q.with(2, q[2] * n));
  if (t.options.log_gate.defined()) t.options.log_gate = at_first_step(t.options.log_gate, n);
  if (t.options.documents.defined()) t.options.documents = documents_of_steps(t.options.documents, n);
  return t;
}

// q, k and v after their convolutions, without padding, which may hold NaN.
Terms convolved(const Rule& of, In q, In k, In v, const AttentionCall& call) {
  const auto clear = [&](const Tensor& x) { return without_padding({x, q.where()}, call); };
  if (!of.convolves()) return {q, clear(k), clear(v)};
  const Tensor& documents = call.documents;
  // A convolution mixes the positions before padding into it, so keys and values are cleared again.
  return {of.q_conv(clear(q), documents), clear(of.k_conv(clear(k), documents)), clear(of.v_conv(clear(v), documents))};
}

// Log gates per head, [B, H, T] or [B, H, T, K], or undefined, with 0 at padding.
Tensor without_padded_gates(const Tensor& log_gate, const Shape& v, const AttentionCall& call) {
  const bool padded = call.key_lengths.defined() || call.key_mask.defined();
  if (!padded || !log_gate.defined()) return log_gate;
  if (log_gate.rank() == 4) return without_padding(log_gate, call);
  const Tensor gate = log_gate.rank() == 2 ? log_gate.expand({v[0], v[1], v[2]}) : log_gate;
  return without_padding(gate.unsqueeze(3), call).squeeze(3);
}

// Sets the gates, rates and scale of the terms, whose q, k and v are those of convolved().
Terms with_gates(const Rule& of, Terms t, const AttentionCall& call, std::span<const Tensor> inputs) {
  const StateRule rule = of.rule;
  const Index n = of.options.value_heads, heads = t.q.dim(1) * n, steps = of.options.householders;
  const auto activated = [&](const Tensor& x) { return of.convolves() ? x : silu(x); };
  const auto clear = [&](const Tensor& x) { return without_padding(x, call); };
  // An input as one row per value head and position: [B, H, T] or, per channel, [B, H, T, K].
  const auto heads_of = [&](const Tensor& x, bool channels) {
    const Tensor y = to_value_heads(x, n);
    return channels ? y : y.squeeze(3);
  };
  const bool channels = has_channels(rule);
  t.options.documents = call.documents;
  t.k = by_steps(t.k, steps);
  t.v = to_value_heads(by_steps(t.v, steps), n);
  if (has_fixed_gates(rule)) t.options.log_gate = fixed_gates(of, heads, t.q.dtype());
  if (rule == StateRule::lightning) {
    t.options.scale = 1;
    t.q = activated(t.q), t.k = activated(t.k), t.v = activated(t.v);
  }
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
    t.q = unit(activated(t.q)), t.k = unit(activated(t.k));
    t.options.beta = sigmoid(heads_of(by_steps(clear(inputs[has_gate(rule) ? 1 : 0]), steps), false));
    if (of.options.max_rate != 1) t.options.beta = t.options.beta * of.options.max_rate;
  }
  t.options.log_gate = without_padded_gates(t.options.log_gate, t.v.shape(), call);
  return of_steps(t, steps);
}

// The result of the rule y [B, value heads, steps T, V] with D v, norm and output gate: [B, H, T, Dv]. Computed in the
// order of memory [B, T, H, Dv].
Tensor finished(const Rule& of, const Tensor& y, const Tensor& added, std::span<const Tensor> inputs) {
  const StateAttentionOptions& o = of.options;
  Tensor x = (added.defined() ? y + added : y).transpose(1, 2);
  if (const Index n = o.householders; n > 1)
    x = x.reshape({x.dim(0), x.dim(1) / n, n, x.dim(2), x.dim(3)}).select(2, n - 1);
  const bool of_group = of.rule == StateRule::ssd, of_all = of.rule == StateRule::lightning;
  if (o.norm && !of_group && !of_all) x = rms_norm(x, of.norm, o.norm_eps);
  x = x.reshape({x.dim(0), x.dim(1), x.dim(2) / o.value_heads, o.value_heads * x.dim(3)});
  if (o.norm && of_all) x = rms_norm(x.flatten(2, 3), of.norm, o.norm_eps).reshape(x.shape());
  if (o.output_gate != OutputGate::none) {
    const Tensor gate = inputs.back().transpose(1, 2);
    x = x * (o.output_gate == OutputGate::silu ? silu(gate) : sigmoid(gate));
  }
  if (o.norm && of_group) x = rms_norm(x, of.norm, o.norm_eps);  // after the gate
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
    const auto [keys, values] = with_steps(rule, k, v, inputs);
    const Terms t =
        with_gates(rule, continued(q, {keys, q.where()}, {values, q.where()}, causal, next), causal, inputs);
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
    return {queries, without_padding({keys, q.where()}, call), without_padding({values, q.where()}, call)};
  }
};

// log(e^x - 1), the inverse of softplus.
Tensor inverse_softplus(const Tensor& x) { return x + log(-expm1(-x)); }

StateAttentionOptions checked(StateRule rule, StateAttentionOptions o, Index heads, Index size) {
  if (o.value_size == 0) o.value_size = o.value_heads * size;
  require(heads > 0 && size > 0, "StateAttention: heads is ", heads, " and size is ", size, "; both must be 1 or more");
  require(o.value_heads > 0 && o.value_size > 0 && o.value_size % o.value_heads == 0, "StateAttention: value_heads is ",
          o.value_heads, " and value_size is ", o.value_size,
          "; both must be 1 or more, and value_heads must divide value_size");
  require(o.convolution > 0 && o.gate_rank >= 0, "StateAttention: convolution is ", o.convolution, " and gate_rank is ",
          o.gate_rank, "; convolution must be 1 or more, and gate_rank 0 or more");
  require(o.max_rate > 0 && o.max_rate <= 2, "StateAttention: max_rate is ", o.max_rate,
          "; it must be above 0 and at most 2");
  require(o.norm_eps > 0 && o.householders > 0, "StateAttention: norm_eps is ", o.norm_eps, " and householders is ",
          o.householders, "; norm_eps must be above 0, and householders 1 or more");
  require(o.householders == 1 || has_delta(rule), "StateAttention: householders is ", o.householders,
          " and the rule is ", name_of(rule), "; only delta rules have several steps per position");
  require(o.layer >= 0 && o.layers >= 0 && (o.layers == 0 || o.layer < o.layers), "StateAttention: layer is ", o.layer,
          " and layers is ", o.layers, "; layer must be from 0 to layers - 1, or layers 0");
  return o;
}

}  // namespace

StateAttentionOptions StateAttentionOptions::published(StateRule rule, Exactly<Index> size) {
  StateAttentionOptions o{.norm = true};
  if (!has_fixed_gates(rule) && rule != StateRule::gla) o.convolution = 4;
  if (rule == StateRule::lightning) o.norm_eps = 1e-6;
  const bool by_sigmoid = rule == StateRule::kda || rule == StateRule::lightning;
  o.output_gate = rule == StateRule::delta ? OutputGate::none : by_sigmoid ? OutputGate::sigmoid : OutputGate::silu;
  if (has_channels(rule)) o.gate_rank = rule == StateRule::gla ? 16 : Index(size);
  return o;
}

StateAttention::StateAttention(StateRule rule, Exactly<Index> heads, Exactly<Index> size, Rng& rng,
                               const StateAttentionOptions& given)
    : rule_(rule), heads_(heads), size_(size), options_(checked(rule, given, heads, size)) {
  const StateAttentionOptions& o = options_;
  const Index all = heads_ * o.value_heads, gates = o.value_heads * (has_channels(rule) ? size_ : 1);
  if (has_decay(rule)) {
    decay = Parameter(log(rng.uniform({all}, 1, 16)));
    gate_bias = Parameter(inverse_softplus(exp(rng.uniform({heads_ * gates}, std::log(0.001), std::log(0.1)))));
  }
  if (rule == StateRule::gla) gate_bias = Parameter(Tensor::zeros({heads_ * gates}));
  if (rule == StateRule::ssd) skip = Parameter(Tensor::ones({all}));
  if (o.norm)
    norm = Parameter(Tensor::ones({rule == StateRule::lightning ? heads_ * o.value_size
                                   : rule == StateRule::ssd     ? o.value_size
                                                                : o.value_size / o.value_heads}));
  if (o.convolution == 1) return;
  const auto convolution = [&](std::optional<Conv1d>& layer, Index channels) {
    layer.emplace(channels, channels, o.convolution, rng,
                  Conv1dLayerOptions{.groups = channels, .bias = rule == StateRule::ssd, .causal = true});
  };
  convolution(q_conv, heads_ * size_);
  convolution(k_conv, heads_ * size_ * o.householders), convolution(v_conv, heads_ * o.value_size * o.householders);
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
  if (has_delta(rule_)) list.push_back({.name = "rate", .size = o.value_heads * o.householders});
  if (o.householders > 1) list.push_back({.name = "steps", .size = (o.householders - 1) * (size_ + o.value_size)});
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
  const bool has_sizes = o.convolution > 1 || o.householders > 1;
  const bool has_heads = has_gate(rule_) || has_sizes || (rule_ == StateRule::lightning && o.norm);
  check(!has_heads || q.dim(1) == heads_, q.where(), op, ": q is ", q.tensor(),
        "; it must have the heads of the parameters, ", heads_);
  check(!has_sizes || q.dim(3) == size_, q.where(), op, ": q is ", q.tensor(),
        "; its last axis must be that of the parameters, ", size_);
  const bool has_value_size = has_sizes || o.norm || o.output_gate != OutputGate::none;
  check(v.dim(3) % o.value_heads == 0 && (!has_value_size || v.dim(3) == o.value_size), q.where(), op, ": v is ",
        v.tensor(),
        has_value_size ? "; its last axis must be value_size, " : "; value heads must divide its last axis: ",
        has_value_size ? o.value_size : o.value_heads);
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
  const auto [keys, values] = with_steps(rule, k, v, inputs);
  const Terms t = with_gates(rule, convolved(rule, q, {keys, q.where()}, {values, q.where()}, call), call, inputs);
  return finished(rule, gated_attention({t.q, q.where()}, t.k, t.v, t.options), t.added, inputs);
}

AttentionState StateAttention::make_state() const { return AttentionState(GatedState{Rule(*this)}, inputs()); }

}  // namespace heed

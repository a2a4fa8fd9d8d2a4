// Mechanisms with gates and delta rules: the inputs of gated_attention(), and the decode state.
#include <cmath>
#include <heed/autograd/detail/attention_inputs.hpp>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/reductions.hpp>
#include <heed/layers/attention/detail/row_lengths.hpp>
#include <heed/layers/attention/gated.hpp>
#include <heed/layers/attention/states.hpp>

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

// A rule with its parameters, for layers and states.
struct Rule {
  StateRule rule;
  Tensor decay, skip;  // [heads], or undefined
};

// The inputs of gated_attention().
struct Terms {
  Tensor q, k, v;
  GatedAttentionOptions options;
  Tensor added;  // of ssd: D v; otherwise undefined
};

// log(1 - 2^(-5 - h)) for each head: [heads, 1].
Tensor retention_gates(Index heads, DType type) {
  Tensor gate = Tensor::empty({heads, 1}, DType::float64);
  for (Index h = 0; h < heads; ++h) gate.ptr<double>()[h] = std::log1p(-std::exp2(-5.0 - static_cast<double>(h)));
  return gate.to(type);
}

Tensor unit(const Tensor& x) {
  const Tensor y = silu(x);
  return y * rsqrt(sum(square(y), {-1}, true) + 1e-6);
}

// x [H] as [H, 1], or [H, 1, 1] for a gate per channel.
Tensor per_head(const Tensor& x, StateRule rule) {
  const Tensor y = x.unsqueeze(1);
  return has_channels(rule) ? y.unsqueeze(2) : y;
}

Terms terms_of(const Rule& of, In q, In k, In v, const AttentionCall& call, std::span<const Tensor> inputs) {
  const StateRule rule = of.rule;
  // Padding may hold NaN, so it is cleared before and, where a gate of it would count, after each function.
  const auto clear = [&](const Tensor& x) { return without_padding({x, q.where()}, call); };
  const auto rows = [&](std::size_t i) { return clear(inputs[i]).squeeze(3); };
  Terms t{q, clear(k), clear(v), {.documents = call.documents}, {}};
  if (rule == StateRule::retention) t.options.log_gate = retention_gates(q.dim(1), q.dtype());
  if (rule == StateRule::gla) t.options.log_gate = softplus(-clear(inputs[0])) * (-1.0 / 16);
  if (has_decay(rule)) {
    const Tensor step = softplus(has_channels(rule) ? clear(inputs[0]) : rows(0));
    t.options.log_gate = -exp(per_head(of.decay, rule)) * step;
    if (rule == StateRule::ssd) {
      t.options.scale = 1;
      t.added = of.skip.unsqueeze(1).unsqueeze(2) * t.v;
      t.v = t.v * step.unsqueeze(3);
    }
  }
  if (has_delta(rule)) {
    t.q = unit(q), t.k = unit(t.k);
    t.options.beta = sigmoid(rows(inputs.size() - 1));
  }
  const bool masked = call.key_lengths.defined() || call.key_mask.defined();
  if (!masked) return t;
  const Shape all = k.shape().with(-1, 1);
  if (rule == StateRule::retention) t.options.log_gate = t.options.log_gate.expand(all.first(3));
  if (!t.options.log_gate.defined()) return t;
  t.options.log_gate =
      has_channels(rule) ? clear(t.options.log_gate) : clear(t.options.log_gate.unsqueeze(3)).squeeze(3);
  return t;
}

// Stores the state of each row.
struct GatedState {
  Rule rule;
  Tensor sums = {};  // [B, H, D, Dv]
  Tensor seen = Tensor::zeros({0}, DType::int32);

  Tensor apply(In q, In k, In v, const AttentionCall& call, std::span<const Tensor> inputs) {
    check(!call.bias.defined(), q.where(), "AttentionState: bias is ", call.bias,
          ", but this state has no scores of single pairs to add a bias to; it must be undefined");
    const NoTape guard;
    const Tensor after = detail::lengths_after("StateAttention", seen, k, call);
    const Terms t = terms_of(rule, q, k, v, {.causal = true, .key_lengths = call.key_lengths}, inputs);
    const Tensor y = gated_attention_step({t.q, q.where()}, t.k, t.v, sums, t.options);
    seen = after;
    return t.added.defined() ? y + t.added : y;
  }
  Tensor lengths() const { return seen; }
  void members(auto&& visit) {
    visit.buffer("lengths", seen);
    visit.buffer("sums", sums);
  }
};

}  // namespace

StateAttention::StateAttention(StateRule rule, Exactly<Index> heads, Exactly<Index> size, Rng& rng)
    : rule_(rule), heads_(heads), size_(size) {
  require(heads > 0 && size > 0, "StateAttention: heads is ", heads_, " and size is ", size_,
          "; both must be 1 or more");
  if (has_decay(rule)) decay = Parameter(log(rng.uniform({heads_}, 1, 16)));
  if (rule == StateRule::ssd) skip = Parameter(Tensor::ones({heads_}));
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
  std::vector<MechanismInput> list;
  // The gates of ssd, gated-delta and kda begin near softplus(-4) = 0.018, in the published range of 0.001 to 0.1.
  if (has_gate(rule_))
    list.push_back({.name = "gate", .size = has_channels(rule_) ? size_ : 1, .bias = has_decay(rule_) ? -4.0 : 0.0});
  if (has_delta(rule_)) list.push_back({.name = "rate"});
  return list;
}

void StateAttention::check_inputs(const std::string& op, In q, std::span<const Tensor> given) const {
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
  const std::string op = name() + " attention";
  detail::check_heads(op.c_str(), q, k, v);
  check(k.shape() == q.shape(), q.where(), op, ": q is ", q.tensor(), " and k is ", k.tensor(),
        "; they must have the same shape");
  check(!has_decay(rule_) || q.dim(1) == heads_, q.where(), op, ": q is ", q.tensor(),
        "; it must have the heads of the parameters, ", heads_);
  check_inputs(op, q, inputs);
  const Terms t = terms_of({rule_, decay, skip}, q, k, v, call, inputs);
  const Tensor y = gated_attention({t.q, q.where()}, t.k, t.v, t.options);
  return t.added.defined() ? y + t.added : y;
}

AttentionState StateAttention::make_state() const { return AttentionState(GatedState{{rule_, decay, skip}}, inputs()); }

}  // namespace heed

// Mechanisms with gates and delta rules: the conformance kit against the weights of their definitions, errors, and
// transformers 5.23 (tests/reference/gated_delta_transformers.py).
#include <doctest/doctest.h>

#include <heed/heed.hpp>
#include <heed/layers/attention/conformance_doctest.hpp>

#include "tests/layers/attention/naive_row.hpp"
#include "tests/layers/attention/state_file.hpp"
#include "tests/reference/stored.hpp"
#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;

namespace {

constexpr StateRule kRules[] = {StateRule::retention, StateRule::ssd,         StateRule::gla,
                                StateRule::delta,     StateRule::gated_delta, StateRule::kda};

double naive_sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double naive_silu(double x) { return x * naive_sigmoid(x); }
double naive_softplus(double x) { return std::log1p(std::exp(-std::fabs(x))) + std::max(x, 0.0); }

bool naive_has_delta(StateRule rule) {
  return rule == StateRule::delta || rule == StateRule::gated_delta || rule == StateRule::kda;
}

// x, or with a delta rule its direction after SiLU, which `after_silu` has had.
std::vector<double> direction(const double* x, Index size, bool delta, bool after_silu) {
  std::vector<double> y(x, x + size);
  if (!delta) return y;
  double sum = 1e-6;
  for (double& c : y) c = after_silu ? c : naive_silu(c), sum += c * c;
  for (double& c : y) c /= std::sqrt(sum);
  return y;
}

// The query is carried back through the positions: at each, its product with the key is the weight of the value, and
// what remains of it is the product with the state before. Heads are value heads.
NaiveWeights naive_state_weights(StateRule rule, const StateAttentionOptions& o, const NaiveRow& row) {
  const bool delta = naive_has_delta(rule), after_silu = o.convolution > 1;
  const auto input = [&](const char* name, Index j, Index c) {
    const Tensor& x = row.values.at(name);
    return x.dense().ptr<double>()[(row.key_head * row.keys + j) * x.dim(3) + c];
  };
  const auto gate_input = [&](Index j, Index c) {
    const Tensor bias = row.values.at("gate_bias").view({-1});
    const Index size = row.values.at("input gate").dim(3);
    return input("input gate", j, c) + bias.ptr<double>()[row.head * size + c];
  };
  const auto gate = [&](Index j, Index c) {
    if (rule == StateRule::retention) return 1 - std::exp2(-5.0 - static_cast<double>(row.head));
    if (rule == StateRule::delta) return 1.0;
    if (rule == StateRule::gla) return std::pow(naive_sigmoid(gate_input(j, c)), 1.0 / 16);
    const double step = naive_softplus(gate_input(j, rule == StateRule::kda ? c : 0));
    return std::exp(-std::exp(row.array("decay")[row.head]) * step);
  };
  std::vector<double> m = direction(row.q, row.size, delta, after_silu);
  if (rule != StateRule::ssd)
    for (double& c : m) c /= std::sqrt(static_cast<double>(row.size));
  NaiveWeights w(row.seen.size(), 0.0);
  for (std::size_t n = row.seen.size(); n-- > 0;) {
    const Index j = row.seen[n];
    const std::vector<double> k = direction(row.k + j * row.size, row.size, delta, after_silu);
    double dot = 0;
    for (std::size_t c = 0; c < m.size(); ++c) dot += m[c] * k[c];
    w[n] = dot;
    if (delta) w[n] *= o.max_rate * naive_sigmoid(input("input rate", j, 0));
    if (rule == StateRule::ssd) w[n] *= naive_softplus(gate_input(j, 0));
    for (std::size_t c = 0; c < m.size(); ++c) {
      if (delta) m[c] -= w[n] * k[c];
      m[c] *= gate(j, static_cast<Index>(c));
    }
    if (rule == StateRule::ssd && j == row.position) w[n] += row.array("skip")[row.head];
  }
  return w;
}

// x [B, H, T, n * size] with n value heads per head, as [B, H * n, T, size], by copying element by element.
Tensor naive_value_heads(const Tensor& x_any, Index n) {
  const Tensor x = x_any.dense();
  const Index H = x.dim(1), T = x.dim(2), size = x.dim(3) / n;
  Tensor y = Tensor::empty({x.dim(0), H * n, T, size}, DType::float64);
  for (Index i = 0; i < y.numel(); ++i) {
    const Index c = i % size, t = i / size % T, h = i / size / T % (H * n), b = i / size / T / (H * n);
    y.ptr<double>()[i] = x.ptr<double>()[((b * H + h / n) * T + t) * n * size + h % n * size + c];
  }
  return y;
}

// SiLU of the causal convolution of x [B, H, T, size] with weight [H * size, 1, W]; masked positions count as 0.
Tensor naive_convolution(const Tensor& x_any, const std::string& name, const AttentionCall& call,
                         const TensorsByName& values) {
  const Tensor weight = values.at(name + ".weight");
  const bool has_bias = values.count(name + ".bias") == 1;
  Tensor x = x_any.dense().clone(), y = Tensor::empty(x.shape(), DType::float64);
  const Index H = x.dim(1), T = x.dim(2), D = x.dim(3), W = weight.dim(2);
  for (Index row = 0; row < x.rows(); ++row) {
    const Index b = row / T / H, t = row % T;
    const bool masked = (call.key_lengths.defined() && static_cast<double>(t) >= call.key_lengths.at({b})) ||
                        (call.key_mask.defined() && call.key_mask.at({b, t}) == 0);
    if (masked) std::fill_n(x.ptr<double>() + row * D, D, 0.0);
  }
  for (Index row = 0; row < x.rows(); ++row)
    for (Index c = 0; c < D; ++c) {
      const Index t = row % T, channel = row / T % H * D + c;
      double sum = has_bias ? values.at(name + ".bias").ptr<double>()[channel] : 0;
      for (Index w = std::max<Index>(0, W - 1 - t); w < W; ++w)
        sum += weight.ptr<double>()[channel * W + w] * x.ptr<double>()[(row - (W - 1) + w) * D + c];
      y.ptr<double>()[row * D + c] = naive_silu(sum);
    }
  return y;
}

// Norm and output gate of y [B, H, T, Dv], in the order of the rule.
void naive_finish(StateRule rule, const StateAttentionOptions& o, Tensor& y, const TensorsByName& values) {
  const Index parts = rule == StateRule::ssd ? 1 : o.value_heads, size = y.dim(3) / parts;
  const auto gate = [&] {
    if (o.output_gate == OutputGate::none) return;
    const Tensor x = values.at("input output").dense();
    for (Index i = 0; i < y.numel(); ++i) {
      const double g = x.ptr<double>()[i];
      y.ptr<double>()[i] *= o.output_gate == OutputGate::silu ? naive_silu(g) : naive_sigmoid(g);
    }
  };
  if (rule == StateRule::ssd) gate();
  for (Index row = 0; o.norm && row < y.numel() / size; ++row) {
    double* p = y.ptr<double>() + row * size;
    double squares = 0;
    for (Index c = 0; c < size; ++c) squares += p[c] * p[c];
    const double scale = 1 / std::sqrt(squares / static_cast<double>(size) + 1e-5);
    for (Index c = 0; c < size; ++c) p[c] *= scale * values.at("norm").at({c});
  }
  if (rule != StateRule::ssd) gate();
}

// The whole mechanism in plain loops.
Tensor naive_state_attention(StateRule rule, const StateAttentionOptions& o, Tensor q, Tensor k, Tensor v,
                             const AttentionCall& call, TensorsByName values) {
  const Index n = o.value_heads, batch = q.dim(0), heads = q.dim(1), T = q.dim(2), value_size = v.dim(3);
  if (o.convolution > 1) {
    q = naive_convolution(q, "q_conv", call, values);
    k = naive_convolution(k, "k_conv", call, values);
    v = naive_convolution(v, "v_conv", call, values);
  }
  for (const char* name : {"input gate", "input rate"})
    if (values.count(name) == 1) values[name] = naive_value_heads(values[name], n);
  const auto repeated = [&](const Tensor& x) {
    return x.unsqueeze(2).expand({batch, heads, n, T, x.dim(3)}).dense().view({batch, heads * n, T, x.dim(3)});
  };
  const auto by_rows = naive_by([&](const NaiveRow& row) { return naive_state_weights(rule, o, row); });
  const Tensor per_head = by_rows(repeated(q), repeated(k), naive_value_heads(v, n), call, values);
  Tensor y = per_head.view({batch, heads, n, T, value_size / n}).transpose(2, 3).dense().clone();
  y = y.view({batch, heads, T, value_size});
  naive_finish(rule, o, y, values);
  return y;
}

MechanismFactory factory_of(StateRule rule, Index heads, Index size, const StateAttentionOptions& o = {}) {
  return [=](Index, Rng& rng) { return StateAttention(rule, heads, size, rng, o); };
}

auto naive_of(StateRule rule, const StateAttentionOptions& o = {}) {
  return [rule, o](const Tensor& q, const Tensor& k, const Tensor& v, const AttentionCall& call,
                   const TensorsByName& values) { return naive_state_attention(rule, o, q, k, v, call, values); };
}

// The published layer with two value heads of size 3 per head.
StateAttentionOptions published_state(StateRule rule, Index size) {
  StateAttentionOptions o = StateAttentionOptions::published(rule, size);
  o.value_heads = 2, o.value_size = 6;
  if (naive_has_delta(rule)) o.max_rate = 2;
  return o;
}

// Whether x is within 1e-5 of the largest element of the expected tensor.
void check_near_transformers(const Tensor& x, const Tensor& expected, const std::string& name) {
  CAPTURE(name);
  REQUIRE(x.numel() == expected.numel());
  const Tensor flat = expected.view({-1}).to(x.dtype());
  const double largest = std::max(1.0, max(abs(flat)).item());
  CHECK(max(abs(x.detach().reshape({-1}) - flat)).item() <= 1e-5 * largest);
}

}  // namespace

TEST_CASE("conformance: mechanisms with gates and delta rules pass all that they declare") {
  for (const StateRule rule : kRules) {
    CAPTURE(static_cast<int>(rule));
    const ConformanceReport report = check_conformance_in_test(
        factory_of(rule, 4, 8),
        thinned({.normalised = false,
                 .reference = naive_of(rule),
                 .of_sizes = [rule](Index heads, Index size) { return factory_of(rule, heads, size); },
                 .save_and_load = through_file}));
    CHECK(report.checks.size() >= thinned(18u, 6u));
  }
}

TEST_CASE("conformance: published layers with gates and delta rules, and with value heads that share keys") {
  for (const StateRule rule : {StateRule::ssd, StateRule::kda}) {
    CAPTURE(static_cast<int>(rule));
    const ConformanceReport report = check_conformance_in_test(
        factory_of(rule, 4, 8, published_state(rule, 8)),
        thinned({.normalised = false,
                 .shared = published_state(rule, 8).convolution > 1,  // later queries read earlier ones
                 .fixed_values = true,
                 .reference = naive_of(rule, published_state(rule, 8)),
                 .of_sizes = [rule](Index heads,
                                    Index size) { return factory_of(rule, heads, size, published_state(rule, size)); },
                 .save_and_load = through_file}));
    CHECK(report.checks.size() >= thinned(18u, 6u));
  }
}

TEST_CASE("mechanisms with gates and delta rules train in a GPT and decode as it computes") {
  for (const std::string name : {"retention", "ssd", "gla", "delta", "gated-delta", "kda"}) {
    CAPTURE(name);
    for (const Index value_heads : {1, 2}) {
      GPTConfig config{.options = {.vocabulary = 11,
                                   .context = 80,
                                   .blocks = {.layers = 2, .attention = {.width = 16, .heads = 2, .value_size = 12}}},
                       .attention = name,
                       .mechanism = {.value_heads = value_heads}};
      Rng rng(1);
      const GPT model(config.options, rng, config.factory());
      Tensor tokens = Tensor::zeros({2, 80}, DType::int32);
      for (Index i = 0; i < tokens.numel(); ++i) tokens.ptr<std::int32_t>()[i] = static_cast<std::int32_t>(i * i % 11);
      const Tensor logits = model(tokens);
      DecodeState state = model.make_state();
      for (Index t = 0; t < 80; t += t == 0 ? 70 : 1)
        CHECK(
            close(state.read(tokens.slice(1, t, t == 0 ? 70 : t + 1)), logits.select(1, t == 0 ? 69 : t), 1e-4, 1e-4));
    }
  }
}

TEST_CASE("a decode state of a gated delta rule takes the same memory after any number of tokens") {
  Rng rng(1);
  const AttentionMechanism m = mechanism_by_name("gated-delta", {.heads = 2, .head_size = 4})(0, rng);
  const NoTape guard;
  AttentionState state = m.make_state();
  const auto numbers = [&] {
    Index n = 0;
    for (const NamedBuffer& b : named_buffers(state)) n += b.buffer->numel();
    return n;
  };
  const Tensor x = rng.normal({3, 2, 1, 4}), one = rng.normal({3, 2, 1, 1});
  const std::vector<Tensor> inputs = {one, one, x};
  state.apply(x, x, x, {}, inputs);
  const Index first = numbers();
  for (int i = 0; i < 20; ++i) state.apply(x, x, x, {}, inputs);
  CHECK(numbers() == first);
}

TEST_CASE("mechanisms with gates and delta rules: options by name are those of the published layers") {
  const auto made = [](const std::string& name, const MechanismOptions& o) {
    Rng rng(1);
    AttentionMechanism m = mechanism_by_name(name, o)(0, rng);
    return m.get<StateAttention>()->options();
  };
  const MechanismOptions plain{.heads = 2, .head_size = 8, .value_size = 12};
  CHECK((made("retention", plain).convolution == 1 && made("gla", plain).convolution == 1));
  for (const char* name : {"ssd", "delta", "gated-delta", "kda"}) CHECK(made(name, plain).convolution == 4);
  CHECK((made("gla", plain).gate_rank == 16 && made("kda", plain).gate_rank == 8));
  CHECK(made("delta", plain).output_gate == OutputGate::none);
  CHECK(made("kda", plain).output_gate == OutputGate::sigmoid);
  CHECK(made("gated-delta", plain).output_gate == OutputGate::silu);
  MechanismOptions other = plain;
  other.value_heads = 3, other.short_convolution = 1, other.output_norm = "none", other.output_gate = "sigmoid";
  other.gate_rank = 5, other.max_rate = 2;
  const StateAttentionOptions o = made("kda", other);
  CHECK((o.value_heads == 3 && o.value_size == 12 && o.convolution == 1 && !o.norm && o.max_rate == 2));
  CHECK((o.output_gate == OutputGate::sigmoid && o.gate_rank == 5));
  const auto error = [&](MechanismOptions wrong, const std::string& name = "kda") {
    wrong.heads = 2, wrong.head_size = 8;
    return error_of([&] { mechanism_by_name(name, wrong)(0, default_rng()); });
  };
  CHECK(contains(error({.output_norm = "layer"}), "output-norm of kda is 'layer'; it must be one of none, rms"));
  CHECK(
      contains(error({.output_gate = "tanh"}), "output-gate of kda is 'tanh'; it must be one of none, silu, sigmoid"));
  CHECK(contains(error({.max_rate = 3}), "max_rate is 3; it must be above 0 and at most 2"));
  CHECK(contains(error({.value_heads = 3}), "value_heads is 3 and value_size is 8; both must be 1 or more"));
}

TEST_CASE("hybrids: every n-th layer of a model with states is softmax attention, in training, decoding and files") {
  for (const std::string name : {"gated-delta", "linear"}) {
    CAPTURE(name);
    GPTConfig config{
        .options = {.vocabulary = 11, .context = 40, .blocks = {.layers = 4, .attention = {.width = 16, .heads = 2}}},
        .attention = name,
        .mechanism = {.global_every = 4}};
    Rng rng(1);
    const GPT model(config.options, rng, config.factory());
    for (std::size_t i = 0; i < 4; ++i)
      CHECK(model.transformer.blocks[i].attention.mechanism.name() == (i == 3 ? "softmax" : name));
    const auto same = from_json<GPTConfig>(to_json(config));
    CHECK((same.mechanism.global_every == 4 && to_json(same) == to_json(config)));
    const Tensor tokens = Rng(2).integers({2, 40}, 0, 11), logits = model(tokens);
    DecodeState state = model.make_state();
    for (Index t = 0; t < 40; ++t) CHECK(close(state.read(tokens.slice(1, t, t + 1)), logits.select(1, t), 1e-4, 1e-4));
  }
}

TEST_CASE("mechanisms with gates and delta rules: errors") {
  Rng rng(1);
  const StateAttention delta(StateRule::gated_delta, 2, 4, rng);
  const Tensor q = Tensor::zeros({1, 2, 5, 4}), k = Tensor::zeros({1, 1, 5, 4}), gate = Tensor::zeros({1, 2, 5, 1});
  CHECK(contains(error_of([&] { StateAttention(StateRule::gla, 0, 4, rng); }), "heads is 0 and size is 4"));
  CHECK(contains(error_of([&] { StateAttention(StateRule::gla, 1, 4, rng, {.convolution = 0}); }),
                 "convolution is 0 and gate_rank is 0; convolution must be 1 or more"));
  const auto error = [&](const Tensor& x, const Tensor& y, const std::vector<Tensor>& inputs) {
    return error_of([&] { delta.apply(x, y, y, {}, inputs); });
  };
  CHECK(contains(error(q, k, {gate, gate}),
                 "gated-delta attention: q is [1, 2, 5, 4] float32 and k is [1, 1, 5, 4] float32"));
  CHECK(contains(error(k, k, {gate, gate}), "it must have the heads of the parameters, 2"));
  CHECK(contains(error(q, q, {gate}), "1 inputs are given; there must be 2"));
  CHECK(contains(error(q, q, {gate, q}), "rate is [1, 2, 5, 4] float32; it must be [1, 2, 5, 1]"));
  const StateAttention with_norm(StateRule::delta, 2, 4, rng, {.value_size = 6, .convolution = 2, .norm = true}),
      three(StateRule::retention, 2, 4, rng, {.value_heads = 3});
  const Tensor wide = Tensor::zeros({1, 2, 5, 8});
  CHECK(contains(error_of([&] { with_norm.apply(q, q, q, {}, std::vector<Tensor>{gate}); }),
                 "v is [1, 2, 5, 4] float32; its last axis must be value_size, 6"));
  CHECK(contains(error_of([&] { with_norm.apply(wide, wide, wide, {}, std::vector<Tensor>{gate}); }),
                 "its last axis must be that of the parameters, 4"));
  CHECK(contains(error_of([&] { three.apply(q, q, q, {}, {}); }), "value heads must divide its last axis: 3"));
  AttentionState state = delta.make_state();
  CHECK(contains(error_of([&] {
                   state.apply(q, q, q, {.bias = Tensor::zeros({5})}, std::vector<Tensor>{gate, gate});
                 }),
                 "this state has no scores of single pairs to add a bias to"));
}

TEST_CASE("gated attention with a delta rule is transformers' chunk form, with states and gradients") {
  const Named all = stored_tensors("gated_delta_transformers.json");
  // [B, T, H, ...] there is [B, H, T, ...] here.
  const auto at = [&](const std::string& name) {
    const Tensor x = all.at("op." + name).to(DType::float32);
    return name == "state" || name == "dstate" || name == "last" || name == "dlast" ? x
                                                                                    : x.transpose(1, 2).contiguous();
  };
  for (const Index block : {16, 64}) {
    Tape tape;
    const Tensor q = tape.watch(at("q")), k = tape.watch(at("k")), v = tape.watch(at("v"));
    GatedAttentionOptions o{.log_gate = tape.watch(at("g")), .beta = tape.watch(at("beta"))};
    o.state = tape.watch(at("state")), o.block = block;
    const GatedAttentionResult y = gated_attention_states(q, k, v, o);
    tape.backward(sum(y.out * at("dy")) + sum(y.state * at("dlast")));
    check_near_transformers(y.out.detach().contiguous(), at("y"), "y");
    check_near_transformers(y.state.detach().contiguous(), at("last"), "last");
    for (const auto& [name, x] : {std::pair<std::string, Tensor>{"q", q},
                                  {"k", k},
                                  {"v", v},
                                  {"g", o.log_gate},
                                  {"beta", o.beta},
                                  {"state", o.state}})
      check_near_transformers(tape.grad(x).contiguous(), at("d" + name), "d" + name);
  }
}

TEST_CASE("a published gated delta layer is transformers' Qwen3NextGatedDeltaNet, in values, gradients and decoding") {
  const Named all = stored_tensors("gated_delta_transformers.json");
  const auto at = [&](const std::string& name) { return all.at("layer." + name).to(DType::float32); };
  Rng rng(1);
  MultiHeadAttention layer(
      {.width = 8, .heads = 2, .key_size = 4, .value_size = 12, .bias = false}, rng,
      mechanism_by_name("gated-delta", {.heads = 2, .head_size = 4, .value_size = 12, .value_heads = 2})(0, rng));
  StateAttention& rule = *layer.mechanism.get<StateAttention>();
  const std::vector<std::pair<std::string, Parameter*>> parameters = {{"qkv", &layer.qkv->weight},
                                                                      {"proj", &layer.proj.weight},
                                                                      {"decay", &rule.decay},
                                                                      {"gate_bias", &rule.gate_bias},
                                                                      {"norm", &rule.norm},
                                                                      {"q_conv", &rule.q_conv->weight},
                                                                      {"k_conv", &rule.k_conv->weight},
                                                                      {"v_conv", &rule.v_conv->weight}};
  for (const auto& [name, p] : parameters) p->copy_(at(name).view(p->shape()));
  const Tensor x = at("x"), expected = at("y");
  {
    Tape tape;
    const Tensor watched = tape.watch(x), y = layer(watched, {.causal = true});
    tape.backward(y, at("dy"));
    check_near_transformers(y, expected, "y");
    check_near_transformers(tape.grad(watched), at("dx"), "dx");
    for (const auto& [name, p] : parameters) check_near_transformers(p->grad(), at("d" + name), "d" + name);
  }
  const NoTape guard;
  AttentionState state;
  check_near_transformers(layer.decode(x.slice(1, 0, 65), state), expected.slice(1, 0, 65).contiguous(),
                          "65 positions");
  for (Index t = 65; t < 70; ++t)
    check_near_transformers(layer.decode(x.slice(1, t, t + 1), state), expected.slice(1, t, t + 1).contiguous(),
                            "a position");
}

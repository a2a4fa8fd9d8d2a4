// Mechanisms with gates and delta rules: the conformance kit against the weights of their definitions, errors, and
// transformers 5.23 (tests/reference/gated_delta_transformers.py).
#include <doctest/doctest.h>

#include <heed/heed.hpp>
#include <heed/layers/attention/conformance_doctest.hpp>

#include "tests/layers/attention/naive_gated.hpp"
#include "tests/layers/attention/naive_row.hpp"
#include "tests/layers/attention/state_file.hpp"
#include "tests/reference/stored.hpp"
#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;

namespace {

constexpr StateRule kRules[] = {StateRule::retention, StateRule::lightning,   StateRule::ssd, StateRule::gla,
                                StateRule::delta,     StateRule::gated_delta, StateRule::kda};

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
  if (rule == StateRule::lightning) o.layer = 1, o.layers = 3;
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
    if (rule == StateRule::lightning) continue;  // as retention; its published layer is below
    CAPTURE(std::string(name_of(rule)));
    const ConformanceReport report = check_conformance_in_test(
        factory_of(rule, 4, 8),
        thinned({.normalised = false,
                 .reference = naive_of(rule),
                 .of_sizes = [rule](Index heads, Index size) { return factory_of(rule, heads, size); },
                 .save_and_load = through_file}));
    CHECK(report.checks.size() >= thinned(18u, 6u));
  }
}

// The kit, with the options `of_size` for heads of a size. They have value_size 6.
static void check_published(StateRule rule, const std::function<StateAttentionOptions(Index size)>& of_size) {
  CAPTURE(std::string(name_of(rule)));
  const ConformanceReport report = check_conformance_in_test(
      factory_of(rule, 4, 8, of_size(8)),
      thinned({.normalised = false,
               .shared = of_size(8).convolution > 1,  // later queries read earlier ones
               .fixed_values = true,
               .reference = naive_of(rule, of_size(8)),
               .of_sizes = [=](Index heads, Index size) { return factory_of(rule, heads, size, of_size(size)); },
               .save_and_load = through_file}));
  CHECK(report.checks.size() >= thinned(18u, 6u));
}

TEST_CASE("conformance: published layers with gates and delta rules, and with value heads that share keys") {
  for (const StateRule rule : {StateRule::lightning, StateRule::ssd, StateRule::kda})
    check_published(rule, [rule](Index size) { return published_state(rule, size); });
}

TEST_CASE("conformance: delta rules with several steps per position are recurrences over all steps") {
  check_published(StateRule::delta, [](Index) { return StateAttentionOptions{.value_size = 6, .householders = 3}; });
  check_published(StateRule::gated_delta, [](Index size) {
    StateAttentionOptions o = published_state(StateRule::gated_delta, size);
    o.householders = 2;
    return o;
  });
}

TEST_CASE("mechanisms with gates and delta rules train in a GPT and decode as it computes") {
  for (const StateRule rule : kRules) {
    CAPTURE(std::string(name_of(rule)));
    for (const Index value_heads : {1, 2}) {
      GPTConfig config{.options = {.vocabulary = 11,
                                   .context = 80,
                                   .blocks = {.layers = 2, .attention = {.width = 16, .heads = 2, .value_size = 12}}},
                       .attention = name_of(rule),
                       .mechanism = {.value_heads = value_heads}};
      if (naive_has_delta(rule)) config.mechanism.householders = value_heads;
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
  for (const char* name : {"retention", "lightning", "gla"}) CHECK(made(name, plain).convolution == 1);
  for (const char* name : {"ssd", "delta", "gated-delta", "kda"}) CHECK(made(name, plain).convolution == 4);
  CHECK((made("gla", plain).gate_rank == 16 && made("kda", plain).gate_rank == 8));
  CHECK(made("delta", plain).output_gate == OutputGate::none);
  for (const char* name : {"lightning", "kda"}) CHECK(made(name, plain).output_gate == OutputGate::sigmoid);
  CHECK((made("lightning", plain).norm_eps == 1e-6 && made("kda", plain).norm_eps == 1e-5));
  CHECK((made("lightning", plain).layers == 0 && made("delta", plain).householders == 1));
  CHECK(made("gated-delta", plain).output_gate == OutputGate::silu);
  MechanismOptions other = plain;
  other.value_heads = 3, other.short_convolution = 1, other.output_norm = "none", other.output_gate = "sigmoid";
  other.gate_rank = 5, other.max_rate = 2, other.householders = 4, other.output_norm_eps = 1e-3;
  const StateAttentionOptions o = made("kda", other);
  CHECK((o.value_heads == 3 && o.value_size == 12 && o.convolution == 1 && !o.norm && o.max_rate == 2));
  CHECK((o.output_gate == OutputGate::sigmoid && o.gate_rank == 5 && o.householders == 4 && o.norm_eps == 1e-3));
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
  CHECK(contains(error_of([&] { StateAttention(StateRule::delta, 1, 4, rng, {.householders = 0}); }),
                 "norm_eps is 1e-05 and householders is 0; norm_eps must be above 0, and householders 1 or more"));
  CHECK(contains(error_of([&] { StateAttention(StateRule::ssd, 1, 4, rng, {.householders = 2}); }),
                 "householders is 2 and the rule is ssd; only delta rules have several steps per position"));
  CHECK(contains(error_of([&] { StateAttention(StateRule::lightning, 1, 4, rng, {.layer = 2, .layers = 2}); }),
                 "layer is 2 and layers is 2; layer must be from 0 to layers - 1, or layers 0"));
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

// Compares a layer with the stored values that begin with `prefix`. Decodes the last positions one by one.
static void check_layer(MultiHeadAttention& layer, const std::string& prefix,
                        std::vector<std::pair<std::string, Parameter*>> parameters) {
  const Named all = stored_tensors("gated_delta_transformers.json");
  const auto at = [&](const std::string& name) { return all.at(prefix + name).to(DType::float32); };
  parameters.emplace_back("qkv", &layer.qkv->weight), parameters.emplace_back("proj", &layer.proj.weight);
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

TEST_CASE("a published gated delta layer is transformers' Qwen3NextGatedDeltaNet, in values, gradients and decoding") {
  Rng rng(1);
  MultiHeadAttention layer(
      {.width = 8, .heads = 2, .key_size = 4, .value_size = 12, .bias = false}, rng,
      mechanism_by_name("gated-delta", {.heads = 2, .head_size = 4, .value_size = 12, .value_heads = 2})(0, rng));
  StateAttention& rule = *layer.mechanism.get<StateAttention>();
  check_layer(layer, "layer.",
              {{"decay", &rule.decay},
               {"gate_bias", &rule.gate_bias},
               {"norm", &rule.norm},
               {"q_conv", &rule.q_conv->weight},
               {"k_conv", &rule.k_conv->weight},
               {"v_conv", &rule.v_conv->weight}});
}

TEST_CASE("a published lightning layer is transformers' MiniMaxLightningAttention of its layer, and so is its decay") {
  for (const Index l : {1, 3}) {  // of 4 layers
    CAPTURE(l);
    Rng rng(1);
    MultiHeadAttention layer({.width = 12, .heads = 3, .bias = false}, rng,
                             mechanism_by_name("lightning", {.heads = 3, .head_size = 4, .layers = 4})(l, rng));
    check_layer(layer, "lightning" + std::to_string(l) + ".", {{"norm", &layer.mechanism.get<StateAttention>()->norm}});
  }
}

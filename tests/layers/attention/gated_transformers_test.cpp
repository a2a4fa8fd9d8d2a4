// Gated delta rules against transformers 5.23: the layer of Qwen3-Next and its chunk form, with gradients. Written by
// tests/reference/gated_delta_transformers.py.
#include <algorithm>
#include <heed/heed.hpp>

#include "tests/reference/stored.hpp"
#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;

namespace {

// Whether x is within 1e-5 of the largest element of the expected tensor.
void check_near(const Tensor& x, const Tensor& expected, const std::string& name) {
  CAPTURE(name);
  REQUIRE(x.numel() == expected.numel());
  const Tensor flat = expected.view({-1}).to(x.dtype());
  const double largest = std::max(1.0, max(abs(flat)).item());
  CHECK(max(abs(x.detach().reshape({-1}) - flat)).item() <= 1e-5 * largest);
}

}  // namespace

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
    check_near(y.out.detach().contiguous(), at("y"), "y");
    check_near(y.state.detach().contiguous(), at("last"), "last");
    for (const auto& [name, x] : {std::pair<std::string, Tensor>{"q", q},
                                  {"k", k},
                                  {"v", v},
                                  {"g", o.log_gate},
                                  {"beta", o.beta},
                                  {"state", o.state}})
      check_near(tape.grad(x).contiguous(), at("d" + name), "d" + name);
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
    check_near(y, expected, "y");
    check_near(tape.grad(watched), at("dx"), "dx");
    for (const auto& [name, p] : parameters) check_near(p->grad(), at("d" + name), "d" + name);
  }
  const NoTape guard;
  AttentionState state;
  check_near(layer.decode(x.slice(1, 0, 65), state), expected.slice(1, 0, 65).contiguous(), "65 positions");
  for (Index t = 65; t < 70; ++t)
    check_near(layer.decode(x.slice(1, t, t + 1), state), expected.slice(1, t, t + 1).contiguous(), "a position");
}

// Multi-head attention around a mechanism: its definition, sizes of heads, memories that are projected once, and what a
// mechanism takes beside q, k and v.
#include <cmath>
#include <heed/heed.hpp>
#include <heed/layers/attention/conformance_doctest.hpp>
#include <heed/layers/attention/detail/compositions.hpp>
#include <numeric>

#include "tests/layers/layer_cases.hpp"
#include "tests/support.hpp"

using namespace heed;
using test::check_errors;
using test::close;
using test::normal;
using test::same_bits;

namespace {

// Softmax attention with a number per key that is added to its scores, and two per query whose sum scales its own.
struct NudgedAttention {
  std::string name() const { return "nudged"; }
  AttentionCapabilities capabilities() const {
    return {.causal = true, .key_mask = true, .weights = true, .cross = true, .grouped = true};
  }
  std::vector<MechanismInput> inputs() const {
    return {{.name = "nudge", .bias = 2},
            {.name = "sharpness", .size = 2, .of = MechanismInput::Of::queries, .bias = -1},
            {.name = "other nudge", .bias = -3}};
  }
  Tensor apply(In q, In k, In v, AttentionCall call, std::span<const Tensor> inputs) const {
    const Tensor nudge = inputs[0] + inputs[2] * 2;                     // [B, Hk, S, 1]
    call.bias = detail::repeat_heads(nudge, q.dim(1)).transpose(2, 3);  // [B, H, 1, S]
    return attention(q * sum(inputs[1], {3}, true), k, v, call);
  }
  void members(auto&&) {}
};

// Columns [begin, begin + heads * size) of y [B, T, ..] as heads.
Tensor columns(const Tensor& y, Index begin, Index heads, Index size) {
  Tensor part = Tensor::empty({y.dim(0), heads, y.dim(1), size}, y.dtype());
  for (Index b = 0; b < y.dim(0); ++b)
    for (Index h = 0; h < heads; ++h)
      for (Index t = 0; t < y.dim(1); ++t)
        for (Index d = 0; d < size; ++d) part[b][h][t].slice(0, d, d + 1).fill_(y.at({b, t, begin + h * size + d}));
  return part;
}

Tensor merged(const Tensor& y) { return y.transpose(1, 2).reshape({y.dim(0), y.dim(2), y.dim(1) * y.dim(3)}); }

}  // namespace

TEST_CASE("multi-head attention equals its definition, head by head") {
  Rng rng(4);
  MultiHeadAttention layer({.width = 6, .heads = 2}, rng);
  to(layer, DType::float64);
  const Tensor x = normal({1, 4, 6});
  const Tensor qkv = layer.qkv->operator()(x)[0];  // [4, 18]
  Tensor merged = Tensor::zeros({4, 6}, DType::float64);
  for (Index h = 0; h < 2; ++h) {
    for (Index i = 0; i < 4; ++i) {
      std::vector<double> w;
      for (Index j = 0; j <= i; ++j) {
        double s = 0;
        for (Index d = 0; d < 3; ++d) s += qkv.at({i, h * 3 + d}) * qkv.at({j, 6 + h * 3 + d});
        w.push_back(std::exp(s / std::sqrt(3.0)));
      }
      const double sum = std::accumulate(w.begin(), w.end(), 0.0);
      for (Index j = 0; j <= i; ++j)
        for (Index d = 0; d < 3; ++d)
          merged.ptr<double>()[i * 6 + h * 3 + d] += w[static_cast<std::size_t>(j)] / sum * qkv.at({j, 12 + h * 3 + d});
    }
  }
  CHECK(test::close(layer(x, {.causal = true})[0], layer.proj(merged), 1e-12, 1e-12));
}

TEST_CASE("queries and keys of one size, values of another, free of width / heads") {
  Rng rng(4);
  // heads do not divide the width
  MultiHeadAttention self({.width = 7, .heads = 4, .kv_heads = 2, .key_size = 6, .value_size = 3, .rope = true}, rng),
      cross({.width = 7, .heads = 4, .kv_heads = 2, .key_size = 6, .value_size = 3, .memory_width = 5}, rng);
  to(self, DType::float64), to(cross, DType::float64);
  CHECK(self.qkv->weight.shape() == Shape{24 + 12 + 6, 7});
  CHECK(self.proj.weight.shape() == Shape{7, 12});
  CHECK(cross.kv->weight.shape() == Shape{12 + 6, 5});
  const Tensor x = normal({2, 5, 7}), memory = normal({2, 3, 5}, 2), y = (*self.qkv)(x);
  const Tensor mixed =
      attention(rope(columns(y, 0, 4, 6)), rope(columns(y, 24, 2, 6)), columns(y, 36, 2, 3), {.causal = true});
  CHECK(close(self(x, {.causal = true}), self.proj(merged(mixed)), 1e-12, 1e-12));
  const Tensor keys = (*cross.kv)(memory);
  CHECK(close(
      cross(x, memory),
      cross.proj(merged(attention(columns((*cross.q)(x), 0, 4, 6), columns(keys, 0, 2, 6), columns(keys, 12, 2, 3)))),
      1e-12, 1e-12));
  const MultiHeadAttention usual({.width = 8, .heads = 2}, rng), same({.width = 8, .heads = 2, .key_size = 3}, rng);
  CHECK(usual.options().key_size == 4);
  CHECK(usual.options().value_size == 4);
  CHECK(same.options().value_size == 3);
  check_errors({
      {"MultiHeadAttention: key_size is -1 and value_size is -1; they must be 1 or more, or 0 for their defaults",
       [&] { MultiHeadAttention({.width = 8, .heads = 2, .key_size = -1}, rng); }},
      {"MultiHeadAttention: key_size is 4 and value_size is -2",
       [&] { MultiHeadAttention({.width = 8, .heads = 2, .value_size = -2}, rng); }},
      {"MultiHeadAttention: the size of a head is 3; rotary positions need an even one",
       [&] { MultiHeadAttention({.width = 8, .heads = 2, .key_size = 3, .rope = true}, rng); }},
  });
}

TEST_CASE("separate keys and values give what one memory of both side by side gives") {
  Rng rng(4);
  MultiHeadAttention apart({.width = 6, .heads = 2, .memory_width = 3, .value_width = 5}, rng),
      joined({.width = 6, .heads = 2, .memory_width = 8}, rng);
  to(apart, DType::float64);
  to(joined, DType::float64);
  joined.q->weight.copy_(apart.q->weight);
  joined.q->bias.copy_(apart.q->bias);
  joined.proj.weight.copy_(apart.proj.weight);
  joined.proj.bias.copy_(apart.proj.bias);
  joined.kv->weight.zero_();
  joined.kv->weight.slice(0, 0, 6).slice(1, 0, 3).copy_(apart.k->weight);
  joined.kv->weight.slice(0, 6, 12).slice(1, 3, 8).copy_(apart.v->weight);
  joined.kv->bias.slice(0, 0, 6).copy_(apart.k->bias);
  joined.kv->bias.slice(0, 6, 12).copy_(apart.v->bias);
  const Tensor x = normal({2, 4, 6}), keys = normal({2, 7, 3}, 2), values = normal({2, 7, 5}, 3);
  const Tensor both = concatenate({keys, values}, -1);
  const AttentionCall call{.key_lengths = Tensor::from<std::int32_t>({7, 4})};
  CHECK(test::close(apart(x, keys, values, call), joined(x, both, call), 1e-12, 1e-12));
  CHECK(test::close(apart.weights(x, apart.project(keys), call), joined.weights(x, joined.project(both), call), 1e-12,
                    1e-12));
  CHECK(test::names_of(apart) == std::vector<std::string>{"q.weight", "q.bias", "k.weight", "k.bias", "v.weight",
                                                          "v.bias", "proj.weight", "proj.bias"});
}

TEST_CASE("a memory that is projected once, and rows of it, give what the memory gives") {
  Rng rng(4);
  MultiHeadAttention layer({.width = 8, .heads = 2, .memory_width = 5}, rng, NudgedAttention());
  const Tensor x = rng.normal({3, 4, 8}), memory = rng.normal({3, 6, 5}), whole = layer(x, memory);
  const ProjectedMemory projected = layer.project(memory);
  CHECK(same_bits(layer(x, projected), whole));
  CHECK(close(layer(x.slice(1, 2, 3), projected), whole.slice(1, 2, 3)));
  const Tensor picked = Tensor::from<std::int32_t>({2, 0, 2, 2});
  CHECK(close(layer(index_select(x, 0, picked), projected.rows(picked)), index_select(whole, 0, picked)));
  MultiHeadAttention apart({.width = 8, .heads = 2, .memory_width = 5, .value_width = 3}, rng);
  CHECK(apart.project(memory).rows(picked).v.defined() == false);
}

TEST_CASE("what a mechanism takes beside q, k and v comes out of the same product, and begins with its bias") {
  Rng rng(4);
  const Tensor x = normal({2, 5, 8}), memory = normal({2, 3, 6}, 2), other = normal({2, 3, 4}, 3);
  const AttentionCall causal{.causal = true}, lengths{.key_lengths = Tensor::from<std::int32_t>({3, 1})};
  MultiHeadAttention self({.width = 8, .heads = 4, .kv_heads = 2}, rng, NudgedAttention()),
      cross({.width = 8, .heads = 4, .kv_heads = 2, .memory_width = 6}, rng, NudgedAttention()),
      apart({.width = 8, .heads = 4, .kv_heads = 2, .memory_width = 6, .value_width = 4}, rng, NudgedAttention()),
      plain({.width = 8, .heads = 4, .bias = false}, rng, NudgedAttention());
  const auto biases = [](const Parameter& p, Index begin) { return p.slice(0, begin, p.numel()).to_vector<double>(); };
  CHECK(biases(self.qkv->bias, 16) == std::vector<double>{2, 2, -1, -1, -1, -1, -1, -1, -1, -1, -3, -3});
  CHECK(biases(cross.q->bias, 8) == std::vector<double>(8, -1));
  CHECK(biases(cross.kv->bias, 8) == std::vector<double>{2, 2, -3, -3});
  CHECK(biases(apart.k->bias, 4) == std::vector<double>{2, 2, -3, -3});
  CHECK(apart.v->bias.numel() == 4);
  CHECK(plain.qkv->weight.shape() == Shape{24 + 16, 8});
  for (auto* layer : {&self, &cross, &apart}) to(*layer, DType::float64);

  const NudgedAttention nudged;
  const Tensor y = (*self.qkv)(x);
  const std::vector<Tensor> of_self = {columns(y, 16, 2, 1), columns(y, 18, 4, 2), columns(y, 26, 2, 1)};
  CHECK(close(
      self(x, causal),
      self.proj(merged(nudged.apply(columns(y, 0, 4, 2), columns(y, 8, 2, 2), columns(y, 12, 2, 2), causal, of_self))),
      1e-12, 1e-12));
  const Tensor queries = (*cross.q)(x), keys = (*cross.kv)(memory);
  const std::vector<Tensor> of_both = {columns(keys, 8, 2, 1), columns(queries, 8, 4, 2), columns(keys, 10, 2, 1)};
  CHECK(close(cross(x, memory, lengths),
              cross.proj(merged(nudged.apply(columns(queries, 0, 4, 2), columns(keys, 0, 2, 2), columns(keys, 4, 2, 2),
                                             lengths, of_both))),
              1e-12, 1e-12));
  const Tensor q = (*apart.q)(x), k = (*apart.k)(memory), v = (*apart.v)(other);
  const std::vector<Tensor> of_three = {columns(k, 4, 2, 1), columns(q, 8, 4, 2), columns(k, 6, 2, 1)};
  CHECK(close(
      apart(x, memory, other),
      apart.proj(merged(nudged.apply(columns(q, 0, 4, 2), columns(k, 0, 2, 2), columns(v, 0, 2, 2), {}, of_three))),
      1e-12, 1e-12));

  // Weights are of the same inputs.
  for (const bool memories : {false, true}) {
    const MultiHeadAttention& layer = memories ? cross : self;
    const Tensor w = memories ? layer.weights(x, layer.project(memory)) : layer.weights(x, causal);
    const Tensor values = memories ? columns(keys, 4, 2, 2) : columns(y, 12, 2, 2);
    CHECK(close(layer.proj(merged(matmul(w, detail::repeat_heads(values, 4)))),
                memories ? layer(x, memory) : layer(x, causal), 1e-12, 1e-12));
  }
}

TEST_CASE("conformance: a mechanism with inputs of queries and of keys, that attends to memories") {
  check_conformance_in_test([](Index, Rng&) { return NudgedAttention(); }, {.longest = 150});
}

TEST_CASE("all weights of a GPT whose mechanism has inputs are drawn alike, and the declared biases are kept") {
  Rng rng(4);
  GPT model({.vocabulary = 5, .context = 6, .layers = 2, .heads = 2, .width = 64}, rng,
            [](Index, Rng&) { return NudgedAttention(); });
  for (const TransformerBlock& block : model.blocks) {
    const Linear& qkv = *block.attention.qkv;
    const double deviation = std::sqrt(mean(qkv.weight.slice(0, 192, 200) * qkv.weight.slice(0, 192, 200)).item());
    CHECK(std::fabs(deviation - 0.02) < 0.003);
    std::vector<double> biases(192, 0);
    for (const double b : {2, 2, -1, -1, -1, -1, -3, -3}) biases.push_back(b);
    CHECK(qkv.bias.to_vector<double>() == biases);
  }
  const double before =
      GPT({.vocabulary = 5, .context = 6, .layers = 2, .heads = 2, .width = 64}, rng).flops_per_token(6);
  CHECK(model.flops_per_token(6) == before + 6 * 2 * 8 * (64 + 1));
}

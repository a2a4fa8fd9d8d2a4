// Multi-head attention against its definition, and the weights that it reports. Above 400 lines, because half of it
// tests the weights of every mechanism by plain loops.
#include <algorithm>
#include <cmath>
#include <heed/autograd/matmul.hpp>
#include <heed/autograd/shape_ops.hpp>
#include <heed/autograd/tape.hpp>
#include <heed/heed.hpp>
#include <heed/layers/attention/conformance_doctest.hpp>
#include <heed/layers/attention/detail/compositions.hpp>
#include <heed/layers/attention/linear.hpp>
#include <heed/layers/gpt.hpp>
#include <heed/layers/model_config.hpp>
#include <numeric>

#include "tests/layers/layer_cases.hpp"
#include "tests/support.hpp"

using namespace heed;
using test::check_errors;
using test::close;
using test::contains;
using test::error_of;
using test::normal;
using test::same_bits;

namespace {

// Softmax attention with one number per key, added to its scores, and two numbers per query, whose sum scales its
// scores.
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

TEST_CASE("qk_norm: attention reads each head's queries and keys divided by their root mean square, times a gain") {
  Rng rng(4);
  const auto normed = [](const Tensor& y, const Tensor& gain) {  // y [B, H, T, size]
    Tensor out = y.clone();
    for (Index r = 0; r < y.rows(); ++r) {
      double* row = out.ptr<double>() + r * y.dim(-1);
      double squares = 0;
      for (Index d = 0; d < y.dim(-1); ++d) squares += row[d] * row[d];
      for (Index d = 0; d < y.dim(-1); ++d)
        row[d] *= gain.at({d}) / std::sqrt(squares / static_cast<double>(y.dim(-1)) + 1e-6);
    }
    return out;
  };
  const auto with_gains = [&](MultiHeadAttention& layer) {
    to(layer, DType::float64);
    for (Parameter* p : {&layer.q_norm->weight, &layer.k_norm->weight})
      p->copy_(rng.normal(p->shape(), 1, 0.3, DType::float64));
  };
  MultiHeadAttention self({.width = 6, .heads = 2, .kv_heads = 1, .key_size = 4, .rope = true, .qk_norm = true}, rng);
  with_gains(self);
  const Tensor x = normal({2, 5, 6}), y = (*self.qkv)(x);
  const Tensor q = normed(columns(y, 0, 2, 4), self.q_norm->weight),
               k = normed(columns(y, 8, 1, 4), self.k_norm->weight);
  CHECK(close(self(x, {.causal = true}),
              self.proj(merge_heads(attention(rope(q), rope(k), columns(y, 12, 1, 4), {.causal = true}))), 1e-12,
              1e-12));

  MultiHeadAttention cross({.width = 6, .heads = 2, .memory_width = 4, .qk_norm = true}, rng);
  with_gains(cross);
  const Tensor memory = normal({2, 7, 4}, 3), p = (*cross.q)(x), m = (*cross.kv)(memory);
  CHECK(close(
      cross(x, memory),
      cross.proj(merge_heads(attention(normed(columns(p, 0, 2, 3), cross.q_norm->weight),
                                       normed(columns(m, 0, 2, 3), cross.k_norm->weight), columns(m, 6, 2, 3), {}))),
      1e-12, 1e-12));
}

namespace {

// NudgedAttention whose second and third inputs are maps of rank 2 and 3.
struct RankedNudges : NudgedAttention {
  std::vector<MechanismInput> inputs() const {
    std::vector<MechanismInput> list = NudgedAttention::inputs();
    list[1].rank = 2, list[2].rank = 3;
    return list;
  }
};

}  // namespace

TEST_CASE("inputs of mechanisms with a rank are products of two maps, in self-attention and attention to a memory") {
  Rng rng(4);
  MultiHeadAttention self({.width = 6, .heads = 2, .kv_heads = 1}, rng, RankedNudges()),
      cross({.width = 6, .heads = 2, .kv_heads = 1, .memory_width = 5}, rng, RankedNudges());
  CHECK(self.qkv->weight.shape() == Shape{6 + 3 + 3 + 1 + 2 + 3, 6});
  CHECK(cross.q->weight.shape() == Shape{6 + 2, 6});
  CHECK(cross.kv->weight.shape() == Shape{3 + 3 + 1 + 3, 5});
  REQUIRE(self.input_maps.size() == 2);
  CHECK(self.input_maps[0].weight.shape() == Shape{4, 2});
  CHECK(self.input_maps[1].weight.shape() == Shape{1, 3});
  CHECK(self.input_maps[0].bias.to_vector<double>() == std::vector<double>(4, -1));
  CHECK(self.input_maps[1].bias.at({0}) == -3);
  CHECK(self.qkv->bias.slice(0, 12, 18).to_vector<double>() == std::vector<double>{2, 0, 0, 0, 0, 0});
  CHECK(named_parameters(self)[5].name == "input_maps.0.bias");
  to(self, DType::float64), to(cross, DType::float64);
  const Tensor x = normal({2, 5, 6}), memory = normal({2, 7, 5}, 2);
  const Tensor y = (*self.qkv)(x), of_q = (*cross.q)(x), of_k = (*cross.kv)(memory);
  const auto attended = [&](const MultiHeadAttention& m, const Tensor& a, Index q_rank, const Tensor& b, Index k,
                            Index k_rank, const AttentionCall& call) {
    const std::vector<Tensor> inputs = {columns(b, k + 6, 1, 1),
                                        columns(m.input_maps[0](a.slice(2, q_rank, q_rank + 2)), 0, 2, 2),
                                        columns(m.input_maps[1](b.slice(2, k_rank, k_rank + 3)), 0, 1, 1)};
    const Tensor out =
        RankedNudges().apply(columns(a, 0, 2, 3), columns(b, k, 1, 3), columns(b, k + 3, 1, 3), call, inputs);
    return m.proj(merge_heads(out));
  };
  CHECK(close(self(x, {.causal = true}), attended(self, y, 13, y, 6, 15, {.causal = true}), 1e-12, 1e-12));
  CHECK(close(cross(x, memory), attended(cross, of_q, 6, of_k, 0, 7, {}), 1e-12, 1e-12));
}

TEST_CASE("key size and value size may differ and are independent of width / heads") {
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
  CHECK(close(self(x, {.causal = true}), self.proj(merge_heads(mixed)), 1e-12, 1e-12));
  const Tensor keys = (*cross.kv)(memory);
  CHECK(close(cross(x, memory),
              cross.proj(merge_heads(
                  attention(columns((*cross.q)(x), 0, 4, 6), columns(keys, 0, 2, 6), columns(keys, 12, 2, 3)))),
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
      {"MultiHeadAttention: the size of a head is 3; rope requires an even size",
       [&] { MultiHeadAttention({.width = 8, .heads = 2, .key_size = 3, .rope = true}, rng); }},
  });
}

TEST_CASE("separate keys and values equal one memory that concatenates both") {
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

TEST_CASE("a memory that is projected once, and picked rows of the projection, equal the memory") {
  Rng rng(4);
  MultiHeadAttention layer({.width = 8, .heads = 2, .memory_width = 5}, rng, NudgedAttention());
  const Tensor x = rng.normal({3, 4, 8}), memory = rng.normal({3, 6, 5}), whole = layer(x, memory);
  const ProjectedMemory projected = layer.project(memory);
  CHECK(same_bits(layer(x, projected), whole));
  CHECK(close(layer(x.slice(1, 2, 3), projected), whole.slice(1, 2, 3)));
  const Tensor picked = Tensor::from<std::int32_t>({2, 0, 2, 2});
  CHECK(close(layer(index_select(x, 0, picked), pick_rows(projected, picked)), index_select(whole, 0, picked)));
  MultiHeadAttention apart({.width = 8, .heads = 2, .memory_width = 5, .value_width = 3}, rng);
  CHECK(pick_rows(apart.project(memory), picked).v.defined() == false);
}

TEST_CASE("further inputs of a mechanism are columns of the same product, with the declared initial bias") {
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
  CHECK(close(self(x, causal),
              self.proj(merge_heads(
                  nudged.apply(columns(y, 0, 4, 2), columns(y, 8, 2, 2), columns(y, 12, 2, 2), causal, of_self))),
              1e-12, 1e-12));
  const Tensor queries = (*cross.q)(x), keys = (*cross.kv)(memory);
  const std::vector<Tensor> of_both = {columns(keys, 8, 2, 1), columns(queries, 8, 4, 2), columns(keys, 10, 2, 1)};
  CHECK(close(cross(x, memory, lengths),
              cross.proj(merge_heads(nudged.apply(columns(queries, 0, 4, 2), columns(keys, 0, 2, 2),
                                                  columns(keys, 4, 2, 2), lengths, of_both))),
              1e-12, 1e-12));
  const Tensor q = (*apart.q)(x), k = (*apart.k)(memory), v = (*apart.v)(other);
  const std::vector<Tensor> of_three = {columns(k, 4, 2, 1), columns(q, 8, 4, 2), columns(k, 6, 2, 1)};
  CHECK(close(apart(x, memory, other),
              apart.proj(merge_heads(
                  nudged.apply(columns(q, 0, 4, 2), columns(k, 0, 2, 2), columns(v, 0, 2, 2), {}, of_three))),
              1e-12, 1e-12));

  // weights() uses the same inputs.
  for (const bool memories : {false, true}) {
    const MultiHeadAttention& layer = memories ? cross : self;
    const Tensor w = memories ? layer.weights(x, layer.project(memory)) : layer.weights(x, causal);
    const Tensor values = memories ? columns(keys, 4, 2, 2) : columns(y, 12, 2, 2);
    CHECK(close(layer.proj(merge_heads(matmul(w, detail::repeat_heads(values, 4)))),
                memories ? layer(x, memory) : layer(x, causal), 1e-12, 1e-12));
  }
}

TEST_CASE("conformance: a mechanism with inputs of queries and of keys, that attends to memories") {
  check_conformance_in_test([](Index, Rng&) { return NudgedAttention(); }, {.longest = test::thinned<Index>(150, 24)});
}

TEST_CASE("a GPT whose mechanism has inputs draws all weights alike and keeps the declared biases") {
  Rng rng(4);
  GPT model({.vocabulary = 5, .context = 6, .blocks = {.layers = 2, .attention = {.width = 64, .heads = 2}}}, rng,
            [](Index, Rng&) { return NudgedAttention(); });
  for (const TransformerBlock& block : model.transformer.blocks) {
    const Linear& qkv = *block.attention.qkv;
    const double deviation = std::sqrt(mean(qkv.weight.slice(0, 192, 200) * qkv.weight.slice(0, 192, 200)).item());
    CHECK(std::fabs(deviation - 0.02) < 0.003);
    std::vector<double> biases(192, 0);
    for (const double b : {2, 2, -1, -1, -1, -1, -3, -3}) biases.push_back(b);
    CHECK(qkv.bias.to_vector<double>() == biases);
  }
  const double before =
      GPT({.vocabulary = 5, .context = 6, .blocks = {.layers = 2, .attention = {.width = 64, .heads = 2}}}, rng)
          .flops_per_token(6);
  CHECK(model.flops_per_token(6) == before + 6 * 2 * 8 * (64 + 1));
}

namespace {

constexpr Index kHeads = 4, kWidth = 16, kSize = kWidth / kHeads, kTokens = 9;

struct Variant {
  Index kv_heads;
  PositionKind positions;
};
constexpr Variant kVariants[] = {{kHeads, PositionKind::learned}, {2, PositionKind::learned}, {2, PositionKind::rope}};

// Weights are far from uniform, because the initial ones are small.
GPT model_of(const Variant& variant, const std::string& mechanism, bool grouped, double dropout = 0) {
  Rng rng(1);
  GPT model(
      {.vocabulary = 11,
       .context = 12,
       .blocks = {.layers = 2,
                  .attention = {.width = kWidth, .heads = kHeads, .kv_heads = grouped ? variant.kv_heads : kHeads},
                  .dropout = dropout},
       .positions = variant.positions},
      rng, mechanism_by_name(mechanism, {.heads = kHeads, .head_size = kSize, .context = 12}));
  to(model, DType::float64);
  for (const NamedParameter& p : named_parameters(model))
    if (p.name.find(".mechanism.") == std::string::npos)
      p.parameter->copy_(*p.parameter + rng.normal(p.parameter->shape(), 0, 0.4, DType::float64));
  return model;
}

bool is_grouped(const std::string& mechanism) {
  Rng rng(1);
  return mechanism_by_name(mechanism, {.heads = kHeads, .head_size = kSize, .context = 12})(0, rng)
      .capabilities()
      .grouped;
}

Tensor prompt() { return Rng(3).integers({2, kTokens}, 0, 11); }

// The input of a block's attention, for each block.
std::vector<Tensor> inputs_of(const GPT& model, const Tensor& x) {
  std::vector<Tensor> inputs;
  Tensor h = (*model.input.tokens)(x);
  if (model.input.positions) h = h + (*model.input.positions)(x.dim(1));
  for (const TransformerBlock& block : model.transformer.blocks) {
    inputs.push_back(block.norm1(h));
    h = block(h);
  }
  return inputs;
}

// Element d of head `head` in the row of qkv() for position t. With rotary positions, pairs (i, i + size / 2) are
// rotated by the angle t / 10000^(2i / size).
double element(const std::vector<double>& row, Index begin, Index t, Index d, bool rotary) {
  const auto at = [&](Index i) { return row[static_cast<std::size_t>(begin + i)]; };
  if (!rotary) return at(d);
  const Index half = kSize / 2, i = d % half;
  const double angle =
      static_cast<double>(t) / std::pow(10000, 2 * static_cast<double>(i) / static_cast<double>(kSize));
  return d < half ? at(i) * std::cos(angle) - at(i + half) * std::sin(angle)
                  : at(i) * std::sin(angle) + at(i + half) * std::cos(angle);
}

// softmax(q . k / sqrt(size)) over the keys up to t, for one head and query, as plain loops.
std::vector<double> naive_row(const Tensor& qkv, Index batch, Index head, Index t, const Variant& v) {
  const auto row = [&](Index j) { return qkv[batch][j].to_vector<double>(); };
  const bool rotary = v.positions == PositionKind::rope;
  const std::vector<double> query = row(t);
  std::vector<double> w(kTokens, 0);
  double sum = 0;
  for (Index j = 0; j <= t; ++j) {
    const std::vector<double> key = row(j);
    double score = 0;
    for (Index d = 0; d < kSize; ++d)
      score += element(query, head * kSize, t, d, rotary) *
               element(key, kWidth + head / (kHeads / v.kv_heads) * kSize, j, d, rotary);
    sum += w[static_cast<std::size_t>(j)] = std::exp(score / std::sqrt(static_cast<double>(kSize)));
  }
  for (double& x : w) x /= sum;
  return w;
}

}  // namespace

TEST_CASE("attention weights: softmax, grouped and rotary too, against plain loops") {
  const NoTape guard;
  for (const Variant& v : kVariants) {
    const GPT model = model_of(v, "softmax", true);
    const std::vector<Tensor> weights = model.attention_weights(prompt()), inputs = inputs_of(model, prompt());
    REQUIRE(weights.size() == 2);
    double worst = 0, min_weight = 1;
    for (std::size_t layer = 0; layer < 2; ++layer) {
      REQUIRE(weights[layer].shape() == Shape{2, kHeads, kTokens, kTokens});
      const Tensor qkv = (*model.transformer.blocks[layer].attention.qkv)(inputs[layer]);
      for (Index i = 0; i < 2 * kHeads * kTokens; ++i) {
        const Index batch = i / (kHeads * kTokens), head = i / kTokens % kHeads, t = i % kTokens;
        const std::vector<double> right = naive_row(qkv, batch, head, t, v),
                                  row = weights[layer][batch][head][t].to_vector<double>();
        for (std::size_t j = 0; j < row.size(); ++j) worst = std::max(worst, std::fabs(row[j] - right[j]));
        for (std::size_t j = 0; j <= static_cast<std::size_t>(t); ++j) min_weight = std::min(min_weight, row[j]);
      }
    }
    CHECK(worst < 1e-12);
    CHECK(min_weight < 0.01);  // far from uniform, so that errors would show
  }
}

TEST_CASE("attention weights: for every mechanism, weights times values equal the output of the layer") {
  const NoTape guard;
  for (const std::string& mechanism : mechanism_names()) {
    // The values of these depend on the query.
    if (mechanism == "shaw" || mechanism == "nezha" || mechanism == "longformer") continue;
    for (const Variant& v : kVariants) {
      const bool grouped = is_grouped(mechanism);
      const GPT model = model_of(v, mechanism, grouped);
      if (!model.transformer.blocks[0].attention.mechanism.capabilities().weights) continue;
      const std::vector<Tensor> weights = model.attention_weights(prompt()), inputs = inputs_of(model, prompt());
      const Index groups = grouped ? v.kv_heads : kHeads;
      for (std::size_t layer = 0; layer < 2; ++layer) {
        const MultiHeadAttention& attention = model.transformer.blocks[layer].attention;
        const Tensor qkv = (*attention.qkv)(inputs[layer]);
        const Tensor values = qkv.slice(-1, kWidth + groups * kSize, kWidth + 2 * groups * kSize)
                                  .view({2, kTokens, groups, 1, kSize})
                                  .expand({2, kTokens, groups, kHeads / groups, kSize})
                                  .reshape({2, kTokens, kHeads, kSize})
                                  .transpose(1, 2);
        const Tensor y = matmul(weights[layer], values).transpose(1, 2).reshape({2, kTokens, kWidth});
        CAPTURE(mechanism);
        CHECK(test::close(attention.proj(y), attention(inputs[layer], {.causal = true}), 1e-9, 1e-9));
      }
    }
  }
}

TEST_CASE("attention weights: relative positions are in them") {
  const NoTape guard;
  Rng rng(4);
  MultiHeadAttention layer({.width = kWidth, .heads = kHeads, .relative_clip = 2}, rng);
  to(layer, DType::float64);
  layer.relative->weight.copy_(rng.normal(layer.relative->weight.shape(), 0, 2, DType::float64));
  const Tensor x = rng.normal({2, kTokens, kWidth}, 0, 1, DType::float64);
  const AttentionCall call{.causal = true};
  const Tensor values =
      (*layer.qkv)(x).slice(-1, 2 * kWidth, 3 * kWidth).view({2, kTokens, kHeads, kSize}).transpose(1, 2);
  const Tensor y = matmul(layer.weights(x, call), values).transpose(1, 2).reshape({2, kTokens, kWidth});
  CHECK(test::close(layer.proj(y), layer(x, call), 1e-12, 1e-12));
}

TEST_CASE("attention weights: of a layer that attends to a memory, with fewer heads of keys and values") {
  const NoTape guard;
  Rng rng(5);
  const Index width = 16, memory_width = 6, keys = 7, groups = 2;
  MultiHeadAttention layer({.width = width, .heads = kHeads, .kv_heads = groups, .memory_width = memory_width}, rng);
  to(layer, DType::float64);
  const Tensor x = rng.normal({2, kTokens, width}, 0, 2, DType::float64),
               memory = rng.normal({2, keys, memory_width}, 0, 2, DType::float64);
  const AttentionCall call{.key_lengths = Tensor::from<std::int32_t>({7, 3})};
  const Tensor w = layer.weights(x, layer.project(memory), call);
  REQUIRE(w.shape() == Shape{2, kHeads, kTokens, keys});
  const Tensor queries = (*layer.q)(x), keys_values = (*layer.kv)(memory);
  Tensor mixed = Tensor::zeros({2, kTokens, width}, DType::float64);
  double max_error = 0, far = 0;
  for (Index b = 0; b < 2; ++b)
    for (Index h = 0; h < kHeads; ++h)
      for (Index i = 0; i < kTokens; ++i) {
        const Index group = h / (kHeads / groups), length = b == 0 ? 7 : 3;
        std::vector<double> exponentials;
        double sum = 0, total = 0;
        for (Index j = 0; j < length; ++j) {
          double s = 0;
          for (Index d = 0; d < kSize; ++d)
            s += queries.at({b, i, h * kSize + d}) * keys_values.at({b, j, group * kSize + d});
          exponentials.push_back(std::exp(s / std::sqrt(static_cast<double>(kSize))));
          sum += exponentials.back();
        }
        for (Index j = 0; j < keys; ++j) {
          const double weight = j < length ? exponentials[static_cast<std::size_t>(j)] / sum : 0;
          max_error = std::max(max_error, std::fabs(w.at({b, h, i, j}) - weight));
          far = std::max(far, std::fabs(weight - 1.0 / static_cast<double>(length)));
          total += w.at({b, h, i, j});
          for (Index d = 0; d < kSize; ++d)
            mixed.ptr<double>()[(b * kTokens + i) * width + h * kSize + d] +=
                weight * keys_values.at({b, j, (groups + group) * kSize + d});
        }
        max_error = std::max(max_error, std::fabs(total - 1));
      }
  CHECK(max_error < 1e-12);
  CHECK(far > 0.2);  // weights differ enough for errors to show
  CHECK(test::close(layer.proj(mixed), layer(x, memory, call), 1e-12, 1e-12));
  CHECK(contains(error_of([&] { layer.weights(x); }), "this layer attends to a memory; call it with one"));
  const MultiHeadAttention self({.width = width, .heads = kHeads}, rng);
  CHECK(contains(error_of([&] { self.weights(x, layer.project(memory)); }),
                 "this layer is self-attention; call it without a memory"));
}

TEST_CASE("attention weights: neither dropout nor a tape has a part in them") {
  const GPT model = model_of(kVariants[0], "softmax", true, 0.5);
  std::vector<Tensor> on_tape;
  {
    Tape tape;
    on_tape = model.attention_weights(prompt());
    CHECK(tape.steps() == 0);
  }
  const std::vector<Tensor> off_tape = model.attention_weights(prompt());
  for (std::size_t i = 0; i < 2; ++i) CHECK(test::same_bits(on_tape[i], off_tape[i]));
}

TEST_CASE("attention weights: a mechanism without them, and bad tokens, are errors") {
  Rng rng(1);
  const MultiHeadAttention layer({.width = 8, .heads = 2}, rng, LinformerAttention(6, 3, rng));
  CHECK(contains(error_of([&] { layer.weights(rng.normal({1, 6, 8})); }), "attention does not support weights"));
  const GPT model = model_of(kVariants[0], "softmax", true);
  CHECK(contains(error_of([&] {
                   model.attention_weights(Tensor::zeros({1, 13}, DType::int32));
                 }),
                 "x reaches position 13 but the model's context is 12"));
}

// Scores, weights and sums are computed from numbers with a relative rounding error of at most 2^-9. Errors average
// out.
TEST_CASE("MultiHeadAttention: under bfloat16 precision, values and gradients approximate those of float32") {
  for (const bool cross : {false, true})
    for (int options = 0; options < 4; ++options) {
      CAPTURE(cross);
      CAPTURE(options);
      Rng rng(3);
      MultiHeadAttention layer({.width = 48,
                                .heads = 3,
                                .memory_width = cross ? 40 : 0,
                                .rope = !cross && (options & 1) != 0,
                                .qk_norm = (options & 2) != 0},
                               rng);
      const Tensor x = rng.normal({2, 20, 48}), memory = rng.normal({2, 9, 40}), dy = rng.normal({2, 20, 48});
      const auto results = [&](DType precision) {
        const MatmulPrecision scope(precision);
        const auto parameters = named_parameters(layer);
        zero_grad(layer);
        Tape tape;
        const Tensor y = cross ? layer(x, layer.project(memory)) : layer(x, {.causal = true});
        CHECK(y.dtype() == DType::float32);
        tape.backward(sum(y * dy));
        const NoTape no_tape;
        std::vector<Tensor> all = {y.clone()};
        for (const NamedParameter& p : parameters) all.push_back(p.parameter->grad().clone());
        return all;
      };
      const auto expected = results(DType::float32), got = results(DType::bfloat16);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        const double size = max(abs(expected[i])).item();
        CHECK(test::worst(got[i], expected[i], 0, 0.03 * size) <= 1);
      }
      CHECK(!same_bits(got[0], expected[0]));  // the computation differed
    }
}

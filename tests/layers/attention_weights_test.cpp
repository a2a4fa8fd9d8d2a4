// GPT::attention_weights and MultiHeadAttention::weights: what the values get is what the layers give them.
#include <algorithm>
#include <cmath>
#include <heed/autograd/matmul.hpp>
#include <heed/autograd/shape_ops.hpp>
#include <heed/autograd/tape.hpp>
#include <heed/layers/attention/linear.hpp>
#include <heed/layers/gpt.hpp>
#include <heed/layers/model_config.hpp>

#include "tests/support.hpp"

using namespace heed;
using test::contains;
using test::error_of;

namespace {

constexpr Index kHeads = 4, kWidth = 16, kSize = kWidth / kHeads, kTokens = 9;

struct Variant {
  Index kv_heads;
  PositionKind positions;
};
constexpr Variant kVariants[] = {{kHeads, PositionKind::learned}, {2, PositionKind::learned}, {2, PositionKind::rope}};

// Weights far from uniform: the initial ones are small.
GPT model_of(const Variant& variant, const std::string& mechanism, bool grouped, double dropout = 0) {
  Rng rng(1);
  GPT model({.vocabulary = 11,
             .context = 12,
             .layers = 2,
             .heads = kHeads,
             .kv_heads = grouped ? variant.kv_heads : kHeads,
             .width = kWidth,
             .dropout = dropout,
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

// What the attention of a block gets.
std::vector<Tensor> inputs_of(const GPT& model, const Tensor& x) {
  std::vector<Tensor> inputs;
  Tensor h = model.tokens(x);
  if (model.positions) h = h + (*model.positions)(x.dim(1));
  for (const TransformerBlock& block : model.blocks) {
    inputs.push_back(block.norm1(h));
    h = block(h);
  }
  return inputs;
}

// Element d of head `head` of the row of qkv() that belongs to position t, turned by its angle where positions are
// rotary: pairs (i, i + size / 2) by t / 10000^(2i / size).
double element(const std::vector<double>& row, Index begin, Index t, Index d, bool rotary) {
  const auto at = [&](Index i) { return row[static_cast<std::size_t>(begin + i)]; };
  if (!rotary) return at(d);
  const Index half = kSize / 2, i = d % half;
  const double angle =
      static_cast<double>(t) / std::pow(10000, 2 * static_cast<double>(i) / static_cast<double>(kSize));
  return d < half ? at(i) * std::cos(angle) - at(i + half) * std::sin(angle)
                  : at(i) * std::sin(angle) + at(i + half) * std::cos(angle);
}

// softmax(q . k / sqrt(size)) over the keys up to t, of one head and query, as plain loops.
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
    double worst = 0, least = 1;
    for (std::size_t layer = 0; layer < 2; ++layer) {
      REQUIRE(weights[layer].shape() == Shape{2, kHeads, kTokens, kTokens});
      const Tensor qkv = (*model.blocks[layer].attention.qkv)(inputs[layer]);
      for (Index i = 0; i < 2 * kHeads * kTokens; ++i) {
        const Index batch = i / (kHeads * kTokens), head = i / kTokens % kHeads, t = i % kTokens;
        const std::vector<double> right = naive_row(qkv, batch, head, t, v),
                                  row = weights[layer][batch][head][t].to_vector<double>();
        for (std::size_t j = 0; j < row.size(); ++j) worst = std::max(worst, std::fabs(row[j] - right[j]));
        for (std::size_t j = 0; j <= static_cast<std::size_t>(t); ++j) least = std::min(least, row[j]);
      }
    }
    CHECK(worst < 1e-12);
    CHECK(least < 0.01);  // far from uniform, so that there is something to get wrong
  }
}

TEST_CASE("attention weights: of every mechanism, they make of the values what the layer makes") {
  const NoTape guard;
  for (const std::string& mechanism : mechanism_names()) {
    for (const Variant& v : kVariants) {
      const bool grouped = is_grouped(mechanism);
      const GPT model = model_of(v, mechanism, grouped);
      const std::vector<Tensor> weights = model.attention_weights(prompt()), inputs = inputs_of(model, prompt());
      const Index groups = grouped ? v.kv_heads : kHeads;
      for (std::size_t layer = 0; layer < 2; ++layer) {
        const MultiHeadAttention& attention = model.blocks[layer].attention;
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
  double most = 0, far = 0;
  for (Index b = 0; b < 2; ++b)
    for (Index h = 0; h < kHeads; ++h)
      for (Index i = 0; i < kTokens; ++i) {
        const Index group = h / (kHeads / groups), length = b == 0 ? 7 : 3;
        std::vector<double> wanted;
        double sum = 0, total = 0;
        for (Index j = 0; j < length; ++j) {
          double s = 0;
          for (Index d = 0; d < kSize; ++d)
            s += queries.at({b, i, h * kSize + d}) * keys_values.at({b, j, group * kSize + d});
          wanted.push_back(std::exp(s / std::sqrt(static_cast<double>(kSize))));
          sum += wanted.back();
        }
        for (Index j = 0; j < keys; ++j) {
          const double weight = j < length ? wanted[static_cast<std::size_t>(j)] / sum : 0;
          most = std::max(most, std::fabs(w.at({b, h, i, j}) - weight));
          far = std::max(far, std::fabs(weight - 1.0 / static_cast<double>(length)));
          total += w.at({b, h, i, j});
          for (Index d = 0; d < kSize; ++d)
            mixed.ptr<double>()[(b * kTokens + i) * width + h * kSize + d] +=
                weight * keys_values.at({b, j, (groups + group) * kSize + d});
        }
        most = std::max(most, std::fabs(total - 1));
      }
  CHECK(most < 1e-12);
  CHECK(far > 0.2);  // there is something to get wrong
  CHECK(test::close(layer.proj(mixed), layer(x, memory, call), 1e-12, 1e-12));
  CHECK(contains(error_of([&] { layer.weights(x); }), "this layer attends to a memory; call it with one"));
  const MultiHeadAttention self({.width = width, .heads = kHeads}, rng);
  CHECK(contains(error_of([&] { self.weights(x, layer.project(memory)); }),
                 "this layer attends to itself; call it without a memory"));
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
  CHECK(contains(error_of([&] { layer.weights(rng.normal({1, 6, 8})); }), "its weights were asked for"));
  const GPT model = model_of(kVariants[0], "softmax", true);
  CHECK(contains(error_of([&] {
                   model.attention_weights(Tensor::zeros({1, 13}, DType::int32));
                 }),
                 "x reaches position 13 but the model's context is 12"));
}

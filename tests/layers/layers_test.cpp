// Layers: shapes, derivatives in float64, names, errors.
#include <heed/autograd/activations.hpp>
#include <heed/autograd/gradcheck.hpp>
#include <heed/layers/model.hpp>
#include <heed/layers/positions.hpp>
#include <heed/layers/sequential.hpp>
#include <heed/layers/transformer.hpp>
#include <numeric>

#include "tests/support.hpp"

using namespace heed;
using test::contains;
using test::error_of;

namespace {

// gradcheck of a layer's parameters and of its input, all in float64.
template <class L, class F> void check_layer(L& layer, const Tensor& x, F&& f) {
  to(layer, DType::float64);
  Rng rng(17);
  for (const NamedParameter& p : named_parameters(layer)) p.parameter->copy_(*p.parameter + rng.normal(p.parameter->shape(), 0, 0.3, DType::float64));
  gradcheck([&] { return f(x); }, named_parameters(layer));
  gradcheck([&](const std::vector<Tensor>& v) { return f(v[0]); }, {x});
}

Tensor random(const Shape& shape, std::uint64_t seed = 1) { return Rng(seed).normal(shape, 0, 1, DType::float64); }

std::vector<std::string> names(auto& model) {
  std::vector<std::string> list;
  for (const NamedParameter& p : named_parameters(model)) list.push_back(p.name);
  return list;
}

}  // namespace

TEST_CASE("Linear, Embedding and norms") {
  Rng rng(1);
  Linear linear(4, 3, rng);
  check_layer(linear, random({2, 5, 4}), [&](const Tensor& x) { return linear(x); });
  Linear plain(4, 3, rng, {.bias = false});
  CHECK(names(plain) == std::vector<std::string>{"weight"});
  check_layer(plain, random({2, 4}), [&](const Tensor& x) { return plain(x); });
  LayerNorm norm(6);
  check_layer(norm, random({3, 6}), [&](const Tensor& x) { return norm(x); });
  LayerNorm no_bias(6, 1e-5, false);
  check_layer(no_bias, random({3, 6}), [&](const Tensor& x) { return no_bias(x); });
  RMSNorm rms(6);
  check_layer(rms, random({3, 6}), [&](const Tensor& x) { return rms(x); });
  Embedding table(7, 3, rng);
  to(table, DType::float64);
  gradcheck([&] { return table(Tensor::from<std::int32_t>({0, 6, 3, 3}, {2, 2})); }, named_parameters(table));
  CHECK(contains(error_of([&] { Linear(0, 3, rng); }), "in is 0 and out is 3"));
}

TEST_CASE("FeedForward with every activation") {
  for (const FeedForwardKind kind : {FeedForwardKind::relu, FeedForwardKind::gelu, FeedForwardKind::gelu_tanh, FeedForwardKind::silu, FeedForwardKind::swiglu}) {
    Rng rng(2);
    FeedForward mlp(6, rng, {.activation = kind});
    CHECK(mlp.hidden() == (kind == FeedForwardKind::swiglu ? 16 : 24));
    check_layer(mlp, random({2, 3, 6}), [&](const Tensor& x) { return mlp(x); });
  }
}

TEST_CASE("MultiHeadAttention: self, causal, grouped, rotary, cross") {
  Rng rng(3);
  const Tensor x = random({2, 5, 8}), memory = random({2, 7, 6}, 2);
  for (const bool causal : {false, true}) {
    for (const Index groups : {4, 2, 1}) {
      for (const bool rope : {false, true}) {
        MultiHeadAttention attention({.width = 8, .heads = 4, .kv_heads = groups, .bias = groups != 2, .rope = rope}, rng);
        CHECK(attention.qkv->weight.shape() == Shape{8 + 4 * groups, 8});
        check_layer(attention, x, [&](const Tensor& v) { return attention(v, {.causal = causal}); });
      }
    }
  }
  MultiHeadAttention cross({.width = 8, .heads = 2, .memory_width = 6}, rng);
  const Tensor lengths = Tensor::from<std::int32_t>({7, 3});
  check_layer(cross, x, [&](const Tensor& v) { return cross(v, memory, {.key_lengths = lengths}); });
  check_layer(cross, memory, [&](const Tensor& v) { return cross(x, v, {.key_lengths = lengths}); });
  CHECK(contains(error_of([&] { cross(x); }), "this layer attends to a memory"));
  CHECK(contains(error_of([&] { MultiHeadAttention({.width = 8, .heads = 3}, rng); }), "width is 8 and heads is 3"));
  CHECK(contains(error_of([&] { MultiHeadAttention({.width = 8, .heads = 4, .kv_heads = 3}, rng); }), "kv_heads must divide heads"));
  CHECK(contains(error_of([&] { MultiHeadAttention({.width = 6, .heads = 2, .rope = true}, rng); }), "rotary positions need an even one"));
  MultiHeadAttention self({.width = 8, .heads = 2}, rng);
  CHECK(contains(error_of([&] { self(Tensor::ones({2, 3, 9})); }), "x is [2, 3, 9] float32; it must be [batch, positions, 8]"));
  CHECK(contains(error_of([&] { self(Tensor::ones({2, 3, 8}), Tensor::ones({2, 3, 8})); }), "attends to itself"));
}

TEST_CASE("multi-head attention equals its definition, head by head") {
  Rng rng(4);
  MultiHeadAttention layer({.width = 6, .heads = 2}, rng);
  to(layer, DType::float64);
  const Tensor x = random({1, 4, 6});
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
        for (Index d = 0; d < 3; ++d) merged.ptr<double>()[i * 6 + h * 3 + d] += w[static_cast<std::size_t>(j)] / sum * qkv.at({j, 12 + h * 3 + d});
    }
  }
  CHECK(test::close(layer(x, {.causal = true})[0], layer.proj(merged), 1e-12, 1e-12));
}

namespace {

// A user's mechanism: the mean of the values, times a learned factor.
struct MeanAttention {
  Parameter factor{Tensor::full({1}, 2)};

  std::string name() const { return "mean"; }
  AttentionCapabilities capabilities() const { return {.cross = true, .why = "a mean has no order"}; }
  Tensor apply(In q, In, In v, const AttentionCall&) const {
    const Tensor ones = Tensor::full({q.dim(0), q.dim(1), q.dim(2), v.dim(2)}, 1.0 / static_cast<double>(v.dim(2)), v.dtype());
    return matmul(ones, v) * factor;
  }
  void members(auto&& visit) { visit("factor", factor); }
};

}  // namespace

TEST_CASE("a mechanism of the user's own fits, with its parameters and its refusals") {
  Rng rng(5);
  MultiHeadAttention layer({.width = 4, .heads = 2}, rng, MeanAttention{});
  CHECK(names(layer).back() == "mechanism.factor");
  check_layer(layer, random({2, 3, 4}), [&](const Tensor& x) { return layer(x); });
  CHECK(contains(error_of([&] { layer(random({2, 3, 4}), {.causal = true}); }), "mean attention: causal masking was asked for, which it does not have: a mean has no order"));
  CHECK(contains(error_of([&] { layer(random({2, 3, 4}), {.key_lengths = Tensor::from<std::int32_t>({3, 3})}); }), "a key mask was asked for"));
  AttentionState state;
  CHECK(contains(error_of([&] { layer.decode(random({2, 1, 4}), state); }), "a decode state was asked for"));
  MultiHeadAttention grouped({.width = 4, .heads = 2, .kv_heads = 1}, rng, MeanAttention{});
  CHECK(contains(error_of([&] { grouped(Tensor::ones({2, 3, 4})); }), "q has 2 heads and k has 1; they must be equal"));
}

TEST_CASE("Transformer blocks: pre- and post-norm, encoder and decoder") {
  const Tensor x = random({2, 4, 8}), memory = random({2, 3, 8}, 2);
  for (const bool first : {false, true}) {
    Rng rng(6);
    Transformer encoder({.width = 8, .heads = 2, .hidden = 12, .layers = 2, .dropout = 0, .activation = FeedForwardKind::gelu, .norm_first = first}, rng);
    check_layer(encoder, x, [&](const Tensor& v) { return encoder(v); });
    CHECK(encoder.norm.has_value() == first);
    Transformer decoder({.width = 8, .heads = 2, .hidden = 12, .layers = 1, .memory_width = 8, .dropout = 0, .norm = NormKind::rms, .norm_first = first, .causal = true}, rng);
    check_layer(decoder, x, [&](const Tensor& v) { return decoder(v, memory); });
    check_layer(decoder, memory, [&](const Tensor& v) { return decoder(x, v); });
    CHECK(contains(error_of([&] { encoder(x, memory); }), "has no cross-attention"));
    CHECK(contains(error_of([&] { decoder(x); }), "attends to a memory"));
  }
}

TEST_CASE("decoding token by token, in chunks and at once is the same") {
  Rng rng(7);
  Transformer decoder({.width = 8, .heads = 2, .hidden = 12, .layers = 2, .memory_width = 8, .dropout = 0, .norm_first = true, .rope = true, .causal = true}, rng);
  to(decoder, DType::float64);
  const Tensor x = random({2, 9, 8}), memory = random({2, 3, 8}, 2), whole = decoder(x, memory);
  for (const std::vector<Index>& chunks : {std::vector<Index>{9}, {1, 1, 1, 1, 1, 1, 1, 1, 1}, {4, 1, 3, 1}}) {
    std::vector<AttentionState> states;
    Index at = 0;
    for (const Index n : chunks) {
      const Tensor part = decoder.decode(x.slice(1, at, at + n), memory, states);
      CHECK(test::close(part, whole.slice(1, at, at + n), 1e-11, 1e-11));
      at += n;
    }
    CHECK(states[0].length() == 9);
  }
}

TEST_CASE("Sequential takes layers and functions") {
  Rng rng(8);
  Sequential model(Linear(2, 5, rng), [](In x) { return relu(x); }, Linear(5, 3, rng));
  CHECK(names(model) == std::vector<std::string>{"0.weight", "0.bias", "2.weight", "2.bias"});
  check_layer(model, random({4, 2}), [&](const Tensor& x) { return model(x); });
}

namespace {
struct Pair {
  Linear a, b;
  void members(auto&& visit) {
    visit("a", a);
    visit("b", b);
  }
};
}  // namespace

TEST_CASE("models: clone, convert, tie, freeze, count, summary") {
  static_assert(!std::is_copy_constructible_v<Pair> && !std::is_copy_constructible_v<Linear> && std::is_move_constructible_v<Pair>);
  Rng rng(9);
  const auto make = [&] { return Pair{Linear(3, 3, rng), Linear(3, 3, rng)}; };
  Pair model = make();
  Pair copy = clone(model, make);
  CHECK(test::same_bits(copy.b.weight, model.b.weight));
  CHECK(!copy.b.weight.shares_storage(model.b.weight));
  CHECK(parameter_count(model) == 24);
  tie(model.a.weight, model.b.weight);
  CHECK(parameter_count(model) == 15);
  to(model, DType::float64);
  CHECK(model.a.weight.shares_storage(model.b.weight));
  CHECK(model.a.weight.dtype() == DType::float64);
  freeze(model.a);
  CHECK(!model.b.weight.requires_grad());
  Tape tape;
  tape.backward(model.b(random({1, 3})), Tensor::ones({1, 3}, DType::float64));
  CHECK(!model.a.weight.grad().defined());
  CHECK(model.b.bias.grad().defined());
  CHECK(contains(summary(model), "a.weight (frozen)"));
  CHECK(contains(error_of([&] { tie(model.a.weight, copy.a.bias); }), "tie: a is [3, 3] float64 and b is [3] float32"));
  CHECK(contains(error_of([&] { copy_values(copy, model); }), "copy_values: one model has 4 parameters and the other 3"));
}

TEST_CASE("initialisers have the moments that they promise") {
  Rng rng(10);
  Parameter p(Tensor::empty({400, 300}));
  const auto moments = [&] {
    const std::vector<double> v = p.to_vector<double>();
    const double n = static_cast<double>(v.size()), mean = std::accumulate(v.begin(), v.end(), 0.0) / n;
    double square = 0, most = 0;
    for (double x : v) {
      square += (x - mean) * (x - mean);
      most = std::max(most, std::fabs(x));
    }
    return std::array<double, 3>{mean, std::sqrt(square / n), most};
  };
  const auto expect = [&](double deviation, double most) {
    const auto [mean, sd, largest] = moments();
    CHECK(std::fabs(mean) < 0.02 * deviation);
    CHECK(sd == doctest::Approx(deviation).epsilon(0.01));
    CHECK(largest <= most * (1 + 1e-6));
  };
  init::xavier_uniform_(p, rng);
  expect(std::sqrt(2.0 / 700), std::sqrt(6.0 / 700));
  init::xavier_normal_(p, rng, 2);
  expect(2 * std::sqrt(2.0 / 700), 1);
  init::kaiming_uniform_(p, rng);
  expect(std::sqrt(2.0 / 300), std::sqrt(6.0 / 300));
  init::kaiming_normal_(p, rng, std::sqrt(5.0));
  expect(std::sqrt(1.0 / 900), 1);
  init::normal_(p, rng, 0, 0.5);
  expect(0.5, 4);
  init::trunc_normal_(p, rng, 0, 1, -2, 2);
  expect(0.8796, 2);
  init::orthogonal_(p, rng, 1.5);
  const Tensor w = p.to(DType::float64).detach();
  const Tensor product = matmul(w.t(), w);
  for (Index i = 0; i < 300; i += 37)
    for (Index j = 0; j < 300; j += 29) CHECK(product.at({i, j}) == doctest::Approx(i == j ? 2.25 : 0).epsilon(1e-4).scale(1));
  Parameter vector(Tensor::empty({3}));
  CHECK(contains(error_of([&] { init::xavier_uniform_(vector, rng); }), "it needs 2 axes or more"));
}

TEST_CASE("sinusoidal positions follow their formula") {
  const Tensor table = sinusoidal_positions(50, 6, DType::float64);
  CHECK(table.at({7, 0}) == doctest::Approx(std::sin(7.0)));
  CHECK(table.at({7, 3}) == doctest::Approx(std::cos(7 / std::pow(10000.0, 2.0 / 6))));
  Rng rng(1);
  LearnedPositions learned(4, 6, rng);
  CHECK(contains(error_of([&] { learned(3, 2); }), "positions 2 to 4 were asked for; the model has 4"));
}

// Layers: names, shapes, definitions, initial values; whole models. What all layers share is in all_layers_test.cpp.
#include <heed/layers/model.hpp>
#include <numeric>

#include "tests/layers/layer_cases.hpp"
#include "tests/support.hpp"

using namespace heed;
using test::contains;
using test::normal;

namespace {

std::vector<std::string> names(auto& model) {
  std::vector<std::string> list;
  for (const NamedParameter& p : named_parameters(model)) list.push_back(p.name);
  return list;
}

}  // namespace

TEST_CASE("layers have the parameters, with the names and shapes, that they promise") {
  using Strings = std::vector<std::string>;
  Rng rng(1);
  Linear linear(4, 3, rng), plain(4, 3, rng, {.bias = false});
  CHECK(names(linear) == Strings{"weight", "bias"});
  CHECK(linear.weight.shape() == Shape{3, 4});
  CHECK(names(plain) == Strings{"weight"});
  LayerNorm norm(6), no_bias(6, 1e-5, false);
  CHECK(names(norm) == Strings{"weight", "bias"});
  CHECK(names(no_bias) == Strings{"weight"});
  Norm rms(NormKind::rms, 6);
  CHECK(names(rms) == Strings{"weight"});
  Sequential model(
      Linear(2, 5, rng), [](In x) { return relu(x); }, Linear(5, 3, rng));
  CHECK(names(model) == Strings{"0.weight", "0.bias", "2.weight", "2.bias"});
  CHECK(FeedForward(6, rng).hidden() == 24);
  const FeedForward gated(6, rng, {.activation = FeedForwardKind::swiglu});
  CHECK(gated.hidden() == 16);
  CHECK(gated.up.weight.shape() == Shape{32, 6});
  for (const Index groups : {4, 2, 1}) {
    const MultiHeadAttention attention({.width = 8, .heads = 4, .kv_heads = groups}, rng);
    CHECK(attention.qkv->weight.shape() == Shape{8 + 4 * groups, 8});
  }
  MultiHeadAttention mean({.width = 4, .heads = 2}, rng, test::MeanAttention{});
  CHECK(names(mean) == Strings{"qkv.weight", "qkv.bias", "proj.weight", "proj.bias", "mechanism.factor"});
  for (const bool first : {false, true})
    CHECK(Transformer({.width = 8, .heads = 2, .layers = 1, .norm_first = first}, rng).norm.has_value() == first);
}

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
  CHECK(test::close(apart.weights(x, keys, call), joined.weights(x, both, call), 1e-12, 1e-12));
  CHECK(names(apart) == std::vector<std::string>{"q.weight", "q.bias", "k.weight", "k.bias", "v.weight", "v.bias",
                                                 "proj.weight", "proj.bias"});
}

TEST_CASE("an embedding's padding row begins as zeros and gets no gradient") {
  Rng rng(5);
  for (const Index padding : {2, -4}) {
    Embedding layer(6, 3, rng, padding);
    CHECK(test::same_bits(layer.weight[2], Tensor::zeros({3})));
    CHECK(layer.weight[1].at({0}) != 0);
    Tape tape;
    tape.backward(sum(layer(Tensor::from<std::int32_t>({2, 1, 2, 5}))));
    CHECK(layer.weight.grad().to_vector<double>() ==
          std::vector<double>{0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1});
  }
}

TEST_CASE("a transformer without biases has none at all, as nn.TransformerEncoderLayer(bias=False)") {
  Rng rng(6);
  Transformer model({.width = 8, .heads = 2, .layers = 2, .memory_width = 4, .norm_first = true, .bias = false}, rng);
  for (const std::string& name : names(model)) CHECK_MESSAGE(!name.ends_with("bias"), name);
  CHECK(names(model).size() == 2 * 10 + 1);
}

TEST_CASE("decoding token by token, in chunks and at once is the same") {
  Rng rng(7);
  Transformer decoder({.width = 8,
                       .heads = 2,
                       .hidden = 12,
                       .layers = 2,
                       .memory_width = 8,
                       .dropout = 0,
                       .norm_first = true,
                       .rope = true,
                       .causal = true},
                      rng);
  to(decoder, DType::float64);
  const Tensor x = normal({2, 9, 8}), memory = normal({2, 3, 8}, 2), whole = decoder(x, memory);
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
  static_assert(!std::is_copy_constructible_v<Pair> && !std::is_copy_constructible_v<Linear> &&
                std::is_move_constructible_v<Pair>);
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
  tape.backward(model.b(normal({1, 3})), Tensor::ones({1, 3}, DType::float64));
  CHECK(!model.a.weight.grad().defined());
  CHECK(model.b.bias.grad().defined());
  CHECK(contains(summary(model), "a.weight (frozen)"));
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
    for (Index j = 0; j < 300; j += 29)
      CHECK(product.at({i, j}) == doctest::Approx(i == j ? 2.25 : 0).epsilon(1e-4).scale(1));
  // Fans count the places of a kernel: [out, in, place]. Rows are orthonormal where they are fewer.
  Parameter kernel(Tensor::empty({40, 30, 20}, DType::float64));
  init::xavier_uniform_(kernel, rng);
  CHECK(norm(kernel, {}, {.p = INFINITY}).item() == doctest::Approx(std::sqrt(6.0 / (600 + 800))).epsilon(0.01));
  init::orthogonal_(kernel, rng);
  const Tensor flat = kernel.view({40, 600}).detach(), rows = matmul(flat, flat.t());
  for (Index i = 0; i < 40; i += 3)
    for (Index j = 0; j < 40; j += 3) CHECK(rows.at({i, j}) == doctest::Approx(i == j ? 1 : 0).scale(1));
  init::constant_(kernel, 3);
  CHECK(kernel.at({39, 29, 19}) == 3);
  init::uniform_(kernel, rng, 2, 3);
  CHECK(min(kernel).item() >= 2);
  CHECK(max(kernel).item() < 3);
  CHECK(mean(kernel).item() == doctest::Approx(2.5).epsilon(0.01));
}

TEST_CASE("sinusoidal positions follow their formula, in float64 where they are asked for so") {
  const SinusoidalPositions layer(50, 6);
  double worst = 0;
  const Tensor wide = layer(4, 40, DType::float64);
  for (Index t = 0; t < 4; ++t)
    for (Index i = 0; i < 6; ++i) {
      const double angle = static_cast<double>(40 + t) / std::pow(10000.0, static_cast<double>(i / 2 * 2) / 6);
      worst = std::max(worst, std::fabs(wide.at({t, i}) - (i % 2 == 0 ? std::sin(angle) : std::cos(angle))));
    }
  CHECK(worst < 1e-15);
  CHECK(test::same_bits(layer(4, 40), wide.to(DType::float32)));
  const Tensor table = sinusoidal_positions(50, 6, DType::float64);
  CHECK(table.at({7, 0}) == doctest::Approx(std::sin(7.0)));
  CHECK(table.at({7, 3}) == doctest::Approx(std::cos(7 / std::pow(10000.0, 2.0 / 6))));
}

TEST_CASE("Sequential: plain functions stand beside layers, with their default options") {
  Rng rng(1);
  const Tensor x = test::normal({3, 2}, 1, DType::float32);
  Sequential model(
      Linear(2, 5, rng), gelu, relu, heed::tanh, [](In h) { return elu(h, 0.5); }, Linear(5, 3, rng));
  const Tensor wanted = model.get<5>()(elu(heed::tanh(relu(gelu(model.get<0>()(x)))), 0.5));
  CHECK(test::same_bits(model(x), wanted));
  CHECK(named_parameters(model).back().name == "5.bias");
  // A pointer to elu does not know that alpha is 1 unless it is given.
  static_assert(detail::SequentialPart<decltype(&gelu)> && detail::SequentialPart<Linear>);
  static_assert(!detail::SequentialPart<decltype(&elu)> && !detail::SequentialPart<decltype(&softplus)>);
}

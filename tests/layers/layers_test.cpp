// Layers: names, shapes, definitions, initial values; whole models. What all layers share is in all_layers_test.cpp.
#include <heed/layers/model.hpp>
#include <numeric>

#include "tests/layers/layer_cases.hpp"
#include "tests/support.hpp"

using namespace heed;
using test::contains;
using test::names_of;
using test::normal;

TEST_CASE("layers have the parameters, with the names and shapes, that they promise") {
  using Strings = std::vector<std::string>;
  Rng rng(1);
  Linear linear(4, 3, rng), plain(4, 3, rng, {.bias = false});
  CHECK(names_of(linear) == Strings{"weight", "bias"});
  CHECK(linear.weight.shape() == Shape{3, 4});
  CHECK(names_of(plain) == Strings{"weight"});
  LayerNorm norm(6), no_bias(6, 1e-5, false);
  CHECK(names_of(norm) == Strings{"weight", "bias"});
  CHECK(names_of(no_bias) == Strings{"weight"});
  Norm rms(NormKind::rms, 6);
  CHECK(names_of(rms) == Strings{"weight"});
  Sequential model(
      Linear(2, 5, rng), [](In x) { return relu(x); }, Linear(5, 3, rng));
  CHECK(names_of(model) == Strings{"0.weight", "0.bias", "2.weight", "2.bias"});
  CHECK(FeedForward(6, rng).hidden() == 24);
  const FeedForward gated(6, rng, {.activation = FeedForwardKind::swiglu});
  CHECK(gated.hidden() == 16);
  CHECK(gated.up.weight.shape() == Shape{32, 6});
  for (const Index groups : {4, 2, 1}) {
    const MultiHeadAttention attention({.width = 8, .heads = 4, .kv_heads = groups}, rng);
    CHECK(attention.qkv->weight.shape() == Shape{8 + 4 * groups, 8});
  }
  MultiHeadAttention mean({.width = 4, .heads = 2}, rng, test::MeanAttention{});
  CHECK(names_of(mean) == Strings{"qkv.weight", "qkv.bias", "proj.weight", "proj.bias", "mechanism.factor"});
  for (const bool first : {false, true})
    CHECK(Transformer({.width = 8, .heads = 2, .layers = 1, .norm_first = first}, rng).norm.has_value() == first);
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

// Properties of all layers, tested for each row of layer_cases.hpp.
#include <heed/core/dry_run.hpp>
#include <heed/layers/model.hpp>
#include <numeric>

#include "tests/core/levels.hpp"
#include "tests/layers/layer_cases.hpp"
#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;
using heed::test::on_each_float_level;
using test::contains;
using test::names_of;
using test::normal;

namespace {

List inputs_of(const LayerCase& c, Index n, DType dtype = DType::float64) {
  List list;
  for (const Shape& shape : c.inputs(n)) list.push_back(Rng(3, list.size()).normal(shape).to(dtype));
  return list;
}

// The layer in the dtype, with float32 parameter values that are neither 0 nor 1.
AnyLayer made(const LayerCase& c, Index n, DType dtype) {
  Rng rng(1);
  AnyLayer layer = c.make(n, rng);
  for (const NamedParameter& p : layer.parameters())
    p.parameter->copy_(*p.parameter + rng.normal(p.parameter->shape(), 0, 0.3));
  layer.convert(dtype);
  return layer;
}

// The result, and the gradients of all inputs and parameters for a fixed dy.
List run_of(const LayerCase& c, Index n, DType dtype) {
  const AnyLayer layer = made(c, n, dtype);
  Tape tape;
  List watched;
  for (const Tensor& x : inputs_of(c, n, dtype)) watched.push_back(tape.watch(x));
  manual_seed(5);
  const Tensor y = layer.call(watched);
  tape.backward(y, Rng(8).normal(y.shape()).to(dtype));
  List list = {y.detach()};
  for (const Tensor& x : watched) list.push_back(tape.grad(x));
  for (const NamedParameter& p : layer.parameters()) list.push_back(p.parameter->grad());
  return list;
}

// The largest |a - b| relative to the largest |b|, at least 1, the magnitude of inputs and dy.
double relative_distance(const Tensor& a, const Tensor& b) {
  REQUIRE(a.defined() == b.defined());
  if (!a.defined()) return 0;
  REQUIRE(a.shape() == b.shape());
  const std::vector<double> x = a.to_vector<double>(), y = b.to_vector<double>();
  double max_difference = 0, size = 1;
  for (std::size_t i = 0; i < x.size(); ++i) {
    size = std::max(size, std::fabs(y[i]));
    max_difference = std::max(max_difference, std::isfinite(x[i]) ? std::fabs(x[i] - y[i]) : 1e300);
  }
  return max_difference / size;
}

}  // namespace

TEST_CASE("every layer: gradcheck of inputs and parameters, of one, three and eight elements per head") {
  for (const LayerCase& c : layer_cases()) {
    CAPTURE(c.name);
    for (const Index n : {1, 3, 8}) {
      const AnyLayer layer = made(c, n * c.step, DType::float64);
      const List inputs = inputs_of(c, n * c.step);
      manual_seed(5);
      gradcheck(layer.call, inputs, {.min_samples = thinned<Index>(20, 3)});
      gradcheck([&] { return layer.call(inputs); }, layer.parameters(), {.min_samples = thinned<Index>(20, 3)});
    }
  }
}

TEST_CASE(
    "every layer: float32 agrees with float64, forward and backward, around the widths of vectors, on each level") {
  on_each_float_level([] {
    int number = 0;
    for (const LayerCase& c : layer_cases()) {
      CAPTURE(c.name);
      // Luong's general score has no scale: at sizes 16 and 17 scores are tens, and the softmax selects one key. The
      // result is accurate to 1e-6, but terms of ds = p (dp - sum(p dp)) with magnitudes of tens cancel. Their rounding
      // error in float32, multiplied by queries, keys and W, is about 1e-4, while the gradient is 0.3.
      const double bound = c.name.ends_with("luong-general") ? 2e-4 : 1e-4;
      for (const Index n : {1, 3, 4, 5, 8, 15, 16, 17}) {
        if (!is_taken(number++, 3)) continue;
        CAPTURE(n);
        const List rough = run_of(c, n * c.step, DType::float32), exact = run_of(c, n * c.step, DType::float64);
        REQUIRE(rough.size() == exact.size());
        for (std::size_t i = 0; i < exact.size(); ++i) CHECK(relative_distance(rough[i], exact[i]) <= bound);
      }
    }
  });
}

TEST_CASE("every layer: no sequences, empty sequences, one sequence of length one") {
  for (const LayerCase& c : layer_cases()) {
    CAPTURE(c.name);
    const List whole = inputs_of(c, 4, DType::float32);
    if (whole.empty()) continue;
    for (const Shape& size : {Shape{0, 3}, Shape{2, 0}, Shape{1, 1}}) {
      CAPTURE(to_string(size));
      const AnyLayer layer = made(c, 4, DType::float32);
      Tape tape;
      List inputs;
      for (const Tensor& x : whole) inputs.push_back(tape.watch(x.slice(0, 0, size[0]).slice(1, 0, size[1])));
      const Tensor y = layer.call(inputs);
      CHECK(y.shape().first(2) == size);
      tape.backward(y, Tensor::ones(y.shape()));
      for (const Tensor& x : inputs)
        if (const Tensor g = tape.grad(x); g.defined()) CHECK(g.shape() == x.shape());
      for (const NamedParameter& p : layer.parameters()) {
        CAPTURE(p.name);
        if (!p.parameter->grad().defined()) continue;
        for (const double v : p.parameter->grad().to_vector<double>())
          CHECK((y.numel() > 0 ? std::isfinite(v) : v == 0));
      }
    }
  }
}

TEST_CASE("every layer: a NaN in one sequence of the batch reaches its result, and no other's") {
  for (const LayerCase& c : layer_cases()) {
    if (inputs_of(c, 4).empty()) continue;
    CAPTURE(c.name);
    const AnyLayer layer = made(c, 4, DType::float32);
    const List good = inputs_of(c, 4, DType::float32);
    for (std::size_t k = 0; k < good.size(); ++k) {
      List bad;
      for (const Tensor& x : good) bad.push_back(x.clone());
      bad[k][0].fill_(NAN);
      const Tensor y = layer.call(bad), expected = layer.call(good);
      CHECK(same_bits(y[1], expected[1]));
      double nans = 0;
      for (const double v : y[0].to_vector<double>()) nans += std::isnan(v) ? 1 : 0;
      CHECK(nans == static_cast<double>(y[0].numel()));
    }
  }
}

TEST_CASE("layers have the documented parameters, names and shapes") {
  using Strings = std::vector<std::string>;
  Rng rng(1);
  Linear linear(4, 3, rng), plain(4, 3, rng, {.bias = false});
  CHECK(names_of(linear) == Strings{"weight", "bias"});
  CHECK(linear.weight.shape() == Shape{3, 4});
  CHECK(names_of(plain) == Strings{"weight"});
  LayerNorm norm(6), no_bias(6, 1e-5, false);
  CHECK(names_of(norm) == Strings{"weight", "bias"});
  CHECK(names_of(no_bias) == Strings{"weight"});
  Norm rms({NormKind::rms}, 6);
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
    CHECK(
        Transformer({.layers = 1, .attention = {.width = 8, .heads = 2}, .norm_first = first}, rng).norm.has_value() ==
        first);
}

TEST_CASE("every layer keeps only gradients from a dry run, which the next run overwrites") {
  for (const LayerCase& c : layer_cases()) {
    CAPTURE(c.name);
    const Index n = 2 * c.step;
    const AnyLayer layer = made(c, n, DType::float32);
    const List inputs = inputs_of(c, n, DType::float32);
    const auto step = [&] {
      manual_seed(5);
      Tape tape;
      List watched;
      for (const Tensor& x : inputs) watched.push_back(tape.watch(x));
      tape.backward(sum(layer.call(watched)));
    };
    detail::dry_run([&] {
      step();
      for (const NamedParameter& p : layer.parameters()) p.parameter->zero_grad();
    });
    step();
    for (const NamedParameter& p : layer.parameters()) CHECK(all(isfinite(p.parameter->grad())).item<bool>());
  }
}

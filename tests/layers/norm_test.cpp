// Norms as layers: against plain loops and PyTorch, the choice between them, and running statistics.
#include <cmath>
#include <heed/core/dry_run.hpp>
#include <heed/layers/norm.hpp>

#include "tests/layers/layer_cases.hpp"
#include "tests/reference/stored.hpp"
#include "tests/support.hpp"

using namespace heed;

TEST_CASE("norms equal their formulas, row by row") {
  LayerNorm layer(5, 1e-3);
  layer.weight.copy_(test::normal({5}, 1, DType::float32));
  layer.bias.copy_(test::normal({5}, 2, DType::float32));
  RMSNorm rms(5, 1e-3);
  rms.weight.copy_(test::normal({5}, 3, DType::float32));
  const Tensor x = test::normal({2, 3, 5}, 4, DType::float32) * 3 + 1;
  Tensor layered = Tensor::empty({2, 3, 5}, DType::float64), scaled = Tensor::empty({2, 3, 5}, DType::float64);
  for (Index row = 0; row < 6; ++row) {
    const std::vector<double> values = x.reshape({6, 5})[row].to_vector<double>();
    double mean = 0, square = 0, variance = 0;
    for (const double v : values) mean += v / 5, square += v * v / 5;
    for (const double v : values) variance += (v - mean) * (v - mean) / 5;
    for (Index i = 0; i < 5; ++i) {
      const double v = values[static_cast<std::size_t>(i)];
      layered.ptr<double>()[row * 5 + i] =
          (v - mean) / std::sqrt(variance + 1e-3) * layer.weight.at({i}) + layer.bias.at({i});
      scaled.ptr<double>()[row * 5 + i] = v / std::sqrt(square + 1e-3) * rms.weight.at({i});
    }
  }
  CHECK(test::close(layer(x).to(DType::float64), layered));
  CHECK(test::close(rms(x).to(DType::float64), scaled));
}

TEST_CASE("Norm has the names and values of the chosen kind") {
  const Tensor x = test::normal({4, 6}, 1, DType::float32);
  Norm layer({NormKind::layer}, 6), plain({.bias = false}, 6), rms({NormKind::rms}, 6);
  CHECK(test::same_bits(layer(x), LayerNorm(6)(x)));
  CHECK(test::same_bits(rms(x), RMSNorm(6)(x)));
  CHECK(test::names_of(layer) == std::vector<std::string>{"weight", "bias"});
  CHECK(test::names_of(plain) == std::vector<std::string>{"weight"});
  CHECK(test::names_of(rms) == std::vector<std::string>{"weight"});
}

namespace {

// A tensor of tests/reference/convolution_torch.json.
Tensor torch_norm(const std::string& title, const std::string& name) {
  return test::stored_cases("convolution_torch.json").cases.at(title).at(name);
}

}  // namespace

TEST_CASE("GroupNorm and BatchNorm have PyTorch's names, and are their ops") {
  using Strings = std::vector<std::string>;
  GroupNorm group(2, 4, {.eps = 1e-2}), bare(2, 4, {.affine = false});
  CHECK(test::names_of(group) == Strings{"weight", "bias"});
  CHECK(test::names_of(bare).empty());
  const Tensor x = test::normal({3, 4, 5}, 1, DType::float32);
  CHECK(test::same_bits(group(x), group_norm(x, 2, group.weight, group.bias, 1e-2)));
  CHECK(test::same_bits(bare(x), group_norm(x, 2, Tensor(), Tensor())));
  BatchNorm batch(4), untracked(4, {.affine = false, .track_running_stats = false});
  CHECK(test::names_of(batch) == Strings{"weight", "bias"});
  Strings buffers;
  for (const NamedBuffer& b : named_buffers(batch)) buffers.push_back(b.name);
  CHECK(buffers == Strings{"running_mean", "running_var"});
  CHECK(test::same_bits(batch(x), batch_norm(x, batch.running_mean, batch.running_var, batch.weight, batch.bias)));
  CHECK(test::same_bits(untracked(x), batch_norm(x, Tensor(), Tensor())));
}

TEST_CASE("BatchNorm: running statistics of PyTorch, also under recompute") {
  const Tensor x = test::stored_cases("convolution_torch.json").inputs.at("sequence");
  for (const double momentum : {0.1, 0.3})
    for (const bool recomputed : {false, true}) {
      CAPTURE(recomputed);
      const std::string title = momentum == 0.1 ? "running 0.1" : "running 0.3";
      BatchNorm layer(4, {.momentum = momentum});
      to(layer, DType::float64);
      for (const Tensor& batch : {x, x * 2 + 1}) {
        Tape tape;
        const Tensor in = tape.watch(batch);
        const auto f = [&](const std::vector<Tensor>& v) { return layer(v[0]); };
        tape.backward(sum(square(recomputed ? recompute(f, {in}) : f({in}))));
      }
      CHECK(test::close(layer.running_mean, torch_norm(title, "mean"), 1e-12, 1e-13));
      CHECK(test::close(layer.running_var, torch_norm(title, "variance"), 1e-12, 1e-13));
      CHECK(test::close(layer(x), torch_norm(title, "evaluated"), 1e-12, 1e-13));
    }
}

TEST_CASE("BatchNorm: an evaluation and a dry run leave the running statistics as they are") {
  BatchNorm layer(4);
  const Tensor x = test::normal({3, 4, 5}, 1, DType::float32);
  layer(x);
  {
    Tape tape;
    const Evaluation evaluation;
    layer(x);
  }
  detail::dry_run([&] {
    Tape tape;
    layer(tape.watch(x));
  });
  CHECK(test::same_bits(layer.running_mean, Tensor::zeros({4})));
  CHECK(test::same_bits(layer.running_var, Tensor::ones({4})));
}

TEST_CASE("GroupNorm and BatchNorm: errors") {
  const Tensor x = Tensor::zeros({1, 4, 1});
  test::check_errors({
      {"GroupNorm: num_groups is 3 and num_channels is 4; both must be 1 or more, and num_groups must divide",
       [] { GroupNorm(3, 4); }},
      {"BatchNorm: num_features is 0; it must be 1 or more", [] { BatchNorm(0); }},
      {"BatchNorm: eps is 1e-05 and momentum is 1.5; eps must not be negative, and momentum must be in [0, 1]",
       [] { BatchNorm(4, {.momentum = 1.5}); }},
      {"BatchNorm: x is [1, 4, 1] float32; in training a channel must have two values or more (norm_test.cpp:",
       [&] {
         Tape tape;
         BatchNorm layer(4);
         layer(x);
       }},
      {"batch_norm: x is [1, 4, 1] float32 but weight is [3] float32",
       [&] {
         BatchNorm layer(3);
         layer(x);
       }},
      {"BatchNorm: x is [2, 4, 3] float32 and the layer has 3 channels; axis 1 of x must have this size",
       [&] {
         Tape tape;
         BatchNorm layer(3, {.affine = false});
         layer(Tensor::zeros({2, 4, 3}));
       }},
  });
}

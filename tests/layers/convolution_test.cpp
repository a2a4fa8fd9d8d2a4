// Layers of convolutions: shapes, names, initial values, decoding and errors.
#include <algorithm>
#include <array>
#include <heed/layers/convolution.hpp>

#include "tests/layers/layer_cases.hpp"
#include "tests/support.hpp"

using namespace heed;

TEST_CASE("Conv1d and Conv2d have PyTorch's names and shapes, and call their ops") {
  using Strings = std::vector<std::string>;
  Rng rng(1);
  Conv1d layer(8, 12, 3, rng, {.dilation = 2, .groups = 4, .causal = true});
  CHECK(test::names_of(layer) == Strings{"weight", "bias"});
  CHECK(layer.weight.shape() == Shape{12, 2, 3});
  CHECK(layer.bias.shape() == Shape{12});
  const Tensor x = test::normal({2, 8, 5}, 1, DType::float32);
  CHECK(test::same_bits(layer(x), conv1d(x, layer.weight, layer.bias, {.dilation = 2, .groups = 4, .causal = true})));
  Conv2d image(3, 4, {3, 2}, rng, {.stride = {1, 2}, .padding = 1, .bias = false});
  CHECK(test::names_of(image) == Strings{"weight"});
  CHECK(image.weight.shape() == Shape{4, 3, 3, 2});
  CHECK(image(test::normal({2, 3, 5, 6}, 1, DType::float32)).shape() == Shape{2, 4, 5, 4});
}

TEST_CASE("Conv1d and Conv2d: initial values are uniform in +-1/sqrt of the numbers that a filter reads") {
  Rng rng(1);
  const Conv1d layer(16, 64, 3, rng, {.groups = 2});
  const Conv2d image(8, 64, {3, 2}, rng);
  const double bound = 1 / std::sqrt(24.0), bound2 = 1 / std::sqrt(48.0);
  const auto largest = [](const Tensor& x) { return max(abs(x)).item(); };
  CHECK((largest(layer.weight) <= bound && largest(layer.weight) > 0.99 * bound));
  CHECK((largest(layer.bias) <= bound && largest(layer.bias) > 0.9 * bound));
  CHECK((largest(image.weight) <= bound2 && largest(image.weight) > 0.99 * bound2));
  CHECK(std::fabs(mean(layer.weight).item()) < 0.02);
}

TEST_CASE("Conv1d: decoding in any steps, by rows of different lengths, gives the results of the whole sequence") {
  for (const auto& [groups, dilation, kernel] :
       std::vector<std::array<Index, 3>>{{1, 1, 3}, {1, 3, 3}, {4, 3, 2}, {1, 1, 1}}) {
    Rng rng(1);
    Conv1d layer(4, 8, kernel, rng, {.dilation = dilation, .groups = groups, .causal = true});
    to(layer, DType::float64);
    const Tensor x = test::normal({3, 9, 4}), whole = layer(x.t()).t();
    for (const Index step : {1, 2, 9}) {
      Conv1dState state;
      for (Index t = 0; t < 9; t += step) {
        const Index end = std::min<Index>(9, t + step);
        CHECK(test::close(layer.decode(x.slice(1, t, end), state), whole.slice(1, t, end), 1e-13, 1e-13));
      }
    }
    // Rows of 4, 1 and 3 positions, and then two more positions of each, in another order.
    Conv1dState state;
    const std::int32_t counts[] = {4, 1, 3};
    layer.decode(x.slice(1, 0, 4), state, Tensor::from<std::int32_t>({4, 1, 3}));
    Conv1dState picked = pick_rows(state, Tensor::from<std::int32_t>({2, 0, 1, 2}));
    std::vector<Tensor> next, expected;
    for (const Index row : {2, 0, 1, 2}) {
      const Index first = counts[row];
      next.push_back(x.slice(0, row, row + 1).slice(1, first, first + 2));
      expected.push_back(whole.slice(0, row, row + 1).slice(1, first, first + 2));
    }
    CHECK(test::close(layer.decode(concatenate(next, 0), picked), concatenate(expected, 0), 1e-13, 1e-13));
  }
}

TEST_CASE("Conv1d and Conv2d: errors") {
  Rng rng(1);
  test::check_errors({
      {"Conv1d: in_channels is 0, out_channels is 3 and groups is 1; they must be 1 or more, and groups must divide "
       "both",
       [&] { Conv1d(0, 3, 3, rng); }},
      {"Conv2d: in_channels is 4, out_channels is 6 and groups is 4", [&] { Conv2d(4, 6, 3, rng, {.groups = 4}); }},
      {"Conv1d: kernel_size is [0]; it must be 1 or more", [&] { Conv1d(4, 6, 0, rng); }},
      {"conv1d: x is [2, 3, 5] float32 and weight is [6, 4, 3] float32; axis 1 of weight must be 3, the channels of x "
       "divided by groups, 1 (weight, convolution_test.cpp:",
       [&] {
         Conv1d layer(4, 6, 3, rng);
         named_parameters(layer);
         layer(Tensor::zeros({2, 3, 5}));
       }},
      {"Conv1d: causal is 0 and the stride is 1; to decode, a convolution must be causal and have a stride of 1",
       [&] {
         Conv1dState state;
         Conv1d(4, 6, 3, rng).decode(Tensor::zeros({2, 3, 4}), state);
       }},
      {"Conv1d: x is [2, 4] float32; it must be [B, T, in] to decode",
       [&] {
         Conv1dState state;
         Conv1d(4, 6, 3, rng, {.causal = true}).decode(Tensor::zeros({2, 4}), state);
       }},
  });
}

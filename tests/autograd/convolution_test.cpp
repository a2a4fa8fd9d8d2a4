// conv1d() and conv2d() against PyTorch and plain loops, on each level and in each type; memory order; errors.
#include <array>
#include <cmath>
#include <heed/autograd/convolution.hpp>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/matmul.hpp>

#include "tests/autograd/convolution_cases.hpp"
#include "tests/core/levels.hpp"

using namespace heed;
using namespace heed::test;

namespace {

using Sequences = ConvolutionInputs;

// conv1d() or conv2d() of x, weight and bias, which may be missing.
std::function<Tensor(const Sequences&)> conv1(const Conv1dOptions& o) {
  return [o](const Sequences& x) { return conv1d(x[0], x[1], x.size() > 2 ? x[2] : Tensor(), o); };
}
std::function<Tensor(const Sequences&)> conv2(const Conv2dOptions& o) {
  return [o](const Sequences& x) { return conv2d(x[0], x[1], x.size() > 2 ? x[2] : Tensor(), o); };
}

const TorchCase kConvolutions[] = {
    {"conv1d", "sequence filters bias", conv1({})},
    {"conv1d padding", "sequence filters bias", conv1({.padding = 1})},
    {"conv1d stride", "sequence even bias", conv1({.stride = 2, .padding = 2})},
    {"conv1d dilation", "sequence filters bias", conv1({.padding = 3, .dilation = 3})},
    {"conv1d stride and dilation", "sequence filters bias", conv1({3, 4, 2})},
    {"conv1d groups", "sequence grouped bias", conv1({.padding = 1, .groups = 2})},
    {"conv1d groups and stride", "sequence grouped bias", conv1({.stride = 2, .padding = 1, .groups = 2})},
    {"conv1d depthwise", "sequence depthwise scale", conv1({.padding = 1, .groups = 4})},
    {"conv1d depthwise and stride", "sequence depthwise scale", conv1({2, 1, 1, 4})},
    {"conv1d multiplied", "sequence multiplied", conv1({.groups = 4})},
    {"conv1d one", "sequence one bias", conv1({})},
    {"conv1d without bias", "sequence even", conv1({})},
    {"conv1d causal", "sequence filters bias", conv1({.causal = true})},
    {"conv1d causal and dilation", "sequence even bias", conv1({.dilation = 2, .causal = true})},
    {"conv1d causal and depthwise", "sequence depthwise scale", conv1({.dilation = 2, .groups = 4, .causal = true})},
    {"conv1d short", "short filters bias", conv1({.padding = 1})},
    {"conv2d", "image filters2 bias", conv2({})},
    {"conv2d padding", "image filters2 bias", conv2({.padding = {1, 2}})},
    {"conv2d stride", "image filters2 bias", conv2({{2, 3}, 1})},
    {"conv2d dilation", "image filters2 bias", conv2({1, {2, 1}, {2, 3}})},
    {"conv2d groups", "image grouped2 bias", conv2({{1, 2}, {0, 1}, 1, 2})},
    {"conv2d depthwise", "image depthwise2 scale", conv2({{2, 1}, 1, 1, 4})},
};

// Sizes at which the convolution is computed in different ways: few rows, many rows, several chunks of windows, groups,
// filters that read one position, strides.
struct Sizes {
  Index batch, channels, length, filters, kernel;
  Conv1dOptions options;
};
const Sizes kSizes[] = {
    {1, 5, 3, 7, 3, {.padding = 1}},
    {2, 16, 33, 24, 5, {.causal = true}},
    {3, 20, 211, 17, 3, {.padding = 2, .dilation = 2}},
    {1, 64, 700, 65, 3, {.causal = true}},
    {2, 1024, 270, 4, 2, {.dilation = 5}},  // rows at distances of a multiple of 4 KB
    {2, 33, 301, 31, 1, {}},
    {2, 24, 301, 30, 4, {.stride = 3, .padding = 3}},
    {2, 20, 17, 70, 3, {.causal = true}},  // fewer rows than filters
    {3, 21, 17, 60, 4, {.stride = 2, .padding = 3, .groups = 3}},
    {2, 24, 301, 36, 3, {.padding = 1, .groups = 3}},
    {2, 24, 301, 36, 3, {.stride = 2, .padding = 1, .groups = 3}},
    {3, 37, 101, 37, 4, {.groups = 37, .causal = true}},
    {1, 1100, 70, 1100, 5, {.stride = 2, .padding = 2, .groups = 1100}},
};

// Numbers in (-1, 1) that bfloat16 represents.
Tensor short_numbers(const Shape& shape, std::uint64_t seed) {
  return Rng(seed).uniform(shape, -1, 1).to(DType::bfloat16).to(DType::float64);
}

struct SizedCase {
  Tensor x, weight, bias, dy;  // float64
  Run expected;
};

SizedCase sized_case(const Sizes& s) {
  SizedCase c{short_numbers({s.batch, s.channels, s.length}, 1),
              short_numbers({s.filters, s.channels / s.options.groups, s.kernel}, 2),
              short_numbers({s.filters}, 3),
              {},
              {}};
  const Tensor y = conv1d(c.x, c.weight, c.bias, s.options);
  c.dy = short_numbers(y.shape(), 4);
  const PlainConvolution plain{
      c.x.unsqueeze(2).contiguous(),
      c.weight.unsqueeze(2).contiguous(),
      c.bias,
      {{1, s.options.stride}, {0, s.options.padding}, {1, s.options.dilation}, s.options.groups},
      s.options.causal};
  c.expected = plain.run(c.dy.unsqueeze(2).contiguous());
  c.expected.y = c.expected.y.squeeze(2);
  c.expected.gradients[0] = c.expected.gradients[0].squeeze(2);
  c.expected.gradients[1] = c.expected.gradients[1].squeeze(2);
  return c;
}

// The largest |a - b| relative to the largest |b|.
double error_to(const Tensor& a, const Tensor& b) {
  REQUIRE(a.shape() == b.shape());
  const std::vector<double> x = a.to_vector<double>(), y = b.to_vector<double>();
  double max_difference = 0, size = 1e-300;
  for (std::size_t i = 0; i < x.size(); ++i) {
    max_difference = std::max(max_difference, std::isfinite(x[i]) ? std::fabs(x[i] - y[i]) : 1e300);
    size = std::max(size, std::fabs(y[i]));
  }
  return max_difference / size;
}

void check_run(const Run& got, const Run& expected, double bound, double gradient_bound) {
  CHECK(error_to(got.y, expected.y) <= bound);
  for (std::size_t i = 0; i < got.gradients.size(); ++i)
    CHECK(error_to(got.gradients[i], expected.gradients[i]) <= gradient_bound);
}

}  // namespace

TEST_CASE("convolution: values and gradients of PyTorch") {
  for (const TorchCase& c : kConvolutions) check_torch_case(c);
}

TEST_CASE("convolution: plain loops in float64, in every type, on each level") {
  for (const Sizes& s : kSizes) {
    CAPTURE(s.channels);
    CAPTURE(s.length);
    const SizedCase c = sized_case(s);
    on_each_level([&] {
      for (const DType type : {DType::float64, DType::float32, DType::bfloat16}) {
        CAPTURE(type);
        const DType of_bias = type == DType::float64 ? type : DType::float32;
        const Run got = run(conv1(s.options), {c.x.to(type), c.weight.to(type), c.bias.to(of_bias)}, c.dy.to(of_bias));
        CHECK(got.y.dtype() == of_bias);
        check_run(got, c.expected, type == DType::float64 ? 1e-13 : 1e-5, type == DType::float64 ? 1e-13 : 1e-5);
      }
    });
  }
}

TEST_CASE("convolution: a bfloat16 MatmulPrecision rounds the operands of the products") {
  const Sizes s = {2, 20, 301, 17, 3, {.padding = 1}};
  const SizedCase c = sized_case(s);  // numbers that are not changed by rounding
  const MatmulPrecision precision(DType::bfloat16);
  const auto f = conv1(s.options);
  const Sequences inputs = {c.x.to(DType::float32), c.weight.to(DType::float32), c.bias.to(DType::float32)};
  check_run(run(f, inputs, c.dy.to(DType::float32)), c.expected, 1e-5, 1e-5);
  const Sequences more = {inputs[0] * 1.001, inputs[1], inputs[2]};
  CHECK(same_bits(f(more), f({more[0].to(DType::bfloat16).to(DType::float32), more[1], more[2]})));
}

TEST_CASE("convolution: the same bits at any number of threads and in each order of the axes in memory") {
  for (const Sizes& s : kSizes) {
    CAPTURE(s.channels);
    const Shape weight = {s.filters, s.channels / s.options.groups, s.kernel};
    const Tensor x = Rng(1).normal({s.batch, s.length, s.channels}), w = Rng(2).normal(weight);
    const Tensor dy = Rng(4).normal(conv1d(x.t(), w, Tensor(), s.options).shape());
    const auto all = [&](const Tensor& given, bool turned) {
      Run r = run([&](const Sequences& in) { return conv1d(turned ? in[0].t() : in[0], in[1], Tensor(), s.options); },
                  {given, w}, dy);
      return std::vector<Tensor>{r.y.contiguous(), turned ? r.gradients[0].t().contiguous() : r.gradients[0],
                                 r.gradients[1]};
    };
    same_at_any_threads([&] { return all(x, true); });
    const std::vector<Tensor> one = all(x, true), other = all(x.t().contiguous(), false);
    for (std::size_t i = 0; i < one.size(); ++i) CHECK(same_bits(one[i], other[i]));
  }
}

TEST_CASE("convolution: channels that are next to each other stay so, without a copy") {
  const Tensor text = Rng(1).normal({2, 7, 4}), w = Rng(2).normal({6, 4, 3});
  const Tensor y = conv1d(text.t(), w, Tensor(), {.causal = true}).t();
  CHECK(y.shape() == Shape{2, 7, 6});
  CHECK(y.is_contiguous());
  CHECK(conv1d(text.t().contiguous(), w, Tensor(), {.causal = true}).is_contiguous());
  const Tensor image = Rng(1).normal({2, 5, 7, 4}), w2 = Rng(2).normal({6, 4, 3, 3});
  const Tensor z = conv2d(image.permute({0, 3, 1, 2}), w2, Tensor()).permute({0, 2, 3, 1});
  CHECK(z.shape() == Shape{2, 3, 5, 6});
  CHECK(z.is_contiguous());
}

TEST_CASE("convolution: a causal result reads no later position") {
  const Tensor x = Rng(1).normal({1, 3, 8}), w = Rng(2).normal({2, 3, 3});
  Tensor changed = x.clone();
  changed.slice(2, 5, 8).fill_(9);
  const Conv1dOptions causal = {.dilation = 2, .causal = true};
  const Tensor y = conv1d(x, w, Tensor(), causal), z = conv1d(changed, w, Tensor(), causal);
  CHECK(same_bits(y.slice(2, 0, 5).contiguous(), z.slice(2, 0, 5).contiguous()));
  CHECK(!same_bits(y.slice(2, 5, 6).contiguous(), z.slice(2, 5, 6).contiguous()));
}

TEST_CASE("convolution: with documents, each gives what it gives in a row by itself, and so do its gradients") {
  const Tensor starts = Tensor::from<std::int32_t>({0, 0, 0, 0, 4, 5, 5, 5, 5, 0, 1, 1, 1, 1, 1, 1, 1, 1}, {2, 9});
  const std::vector<std::array<Index, 3>> documents = {{0, 0, 4}, {0, 4, 5}, {0, 5, 9}, {1, 0, 1}, {1, 1, 9}};
  on_each_float_level([&] {
    for (const Index channels : {1, 3, 40}) {
      const Tensor x = Rng(1).normal({2, channels, 9}), w = Rng(2).normal({channels, 1, 4}),
                   b = Rng(3).normal({channels}), dy = Rng(4).normal({2, channels, 9});
      Conv1dOptions o{.dilation = channels == 3 ? 2 : 1, .groups = channels, .causal = true};
      o.documents = starts;
      const Run all = run(conv1(o), {x, w, b}, dy);
      o.documents = {};
      Tensor dw = Tensor::zeros(w.shape()), db = Tensor::zeros(b.shape());
      for (const auto& [row, first, last] : documents) {
        const auto part = [r = row, f = first, l = last](const Tensor& t) {
          return t.slice(0, r, r + 1).slice(2, f, l).contiguous();
        };
        const Run one = run(conv1(o), {part(x), w, b}, part(dy));
        CHECK(close(part(all.y), one.y, 1e-6, 1e-6));
        CHECK(close(part(all.gradients[0]), one.gradients[0], 1e-6, 1e-6));
        dw = dw + one.gradients[1], db = db + one.gradients[2];
      }
      CHECK(close(all.gradients[1], dw, 1e-5, 1e-5));
      CHECK(close(all.gradients[2], db, 1e-5, 1e-5));
    }
  });
}

TEST_CASE("convolution: a sequence without positions, and without examples") {
  const Tensor w = Tensor::ones({6, 4, 3}), b = Tensor::ones({6});
  CHECK(conv1d(Tensor::zeros({2, 4, 0}), w, b).shape() == Shape{2, 6, 0});
  CHECK(conv1d(Tensor::zeros({2, 4, 0}), w, b, {.padding = 5}).shape() == Shape{2, 6, 0});
  CHECK(conv1d(Tensor::zeros({0, 4, 5}), w, b).shape() == Shape{0, 6, 3});
  const Run r = run(conv1({}), {Tensor::zeros({0, 4, 5}), w, b}, Tensor::zeros({0, 6, 3}));
  CHECK(same_bits(r.gradients[1], Tensor::zeros({6, 4, 3})));
  CHECK(same_bits(r.gradients[2], Tensor::zeros({6})));
  // Without channels, the result is the bias.
  CHECK(same_bits(conv1d(Tensor::zeros({1, 0, 5}), Tensor::zeros({6, 0, 3}), b), Tensor::ones({1, 6, 3})));
}

TEST_CASE("convolution: errors") {
  const Tensor x = Tensor::zeros({2, 4, 9}), w = Tensor::zeros({6, 4, 3}), b = Tensor::zeros({6});
  const Tensor image = Tensor::zeros({2, 4, 5, 6}), w2 = Tensor::zeros({6, 4, 3, 3});
  const Tensor taps = Tensor::zeros({4, 1, 3}), starts = Tensor::zeros({2, 9}, DType::int32);
  check_errors({
      {"conv1d: documents are given, causal is 0, the stride 1, groups is 4",
       [&] { conv1d(x, taps, Tensor(), {.groups = 4, .documents = starts}); }},
      {"with documents, causal must be true, the stride 1, and each group one channel and one filter",
       [&] { conv1d(x, w, b, {.causal = true, .documents = starts}); }},
      {"conv1d: x is [2, 4, 9] float32 and documents is [2, 9] float32; it must be [2, 9] int32",
       [&] {
         conv1d(x, taps, Tensor(), {.groups = 4, .causal = true, .documents = Tensor::zeros({2, 9})});
       }},
      {"conv1d: x is [2, 4, 5, 6] float32 and weight is [6, 4, 3] float32; they must be [N, C, L] and "
       "[out, C / groups, K] (convolution_test.cpp:",
       [&] { conv1d(image, w, b); }},
      {"conv2d: x is [2, 4, 5, 6] float32 and weight is [6, 4, 3] float32; they must be [N, C, H, W] and "
       "[out, C / groups, KH, KW]",
       [&] { conv2d(image, w, b); }},
      {"conv1d: x is undefined", [&] { conv1d(Tensor(), w, b); }},
      {"conv1d: groups is 3, x is [2, 4, 9] float32 and weight is [6, 4, 3] float32; groups must divide the channels",
       [&] { conv1d(x, w, b, {.groups = 3}); }},
      {"conv1d: groups is 0", [&] { conv1d(x, w, b, {.groups = 0}); }},
      {"conv1d: x is [2, 4, 9] float32 and weight is [6, 4, 3] float32; axis 1 of weight must be 2, the channels of x "
       "divided by groups, 2",
       [&] { conv1d(x, w, b, {.groups = 2}); }},
      {"conv1d: x is [2, 4, 9] float64 and weight is [6, 4, 3] float32; both must be float64, or each float32 or "
       "bfloat16",
       [&] { conv1d(x.to(DType::float64), w, b); }},
      {"conv1d: weight is [6, 4, 3] float32 and bias is [5] float32; bias must be [6] float32",
       [&] { conv1d(x, w, Tensor::zeros({5})); }},
      {"conv1d: x is [2, 4, 9] float32, along L the padding is 0 and a window spans 11; it must not be longer than 9, "
       "the positions with their padding",
       [&] { conv1d(x, w, b, {.dilation = 5}); }},
      {"conv2d: x is [2, 4, 5, 6] float32, along H the padding is 0 and a window spans 7",
       [&] {
         conv2d(image, w2, b, {.dilation = {3, 1}});
       }},
      {"conv1d: along L the kernel is 3, the stride 0 and the dilation 1; they must be 1 or more, and below 2^31",
       [&] { conv1d(x, w, b, {.stride = 0}); }},
      {"conv1d: along L the kernel is 3, the stride 1 and the dilation 4611686018427387904",
       [&] { conv1d(x, w, b, {.dilation = Index{1} << 62}); }},
      {"conv1d: along L the padding is -1; it must be in [0, 2^31)", [&] { conv1d(x, w, b, {.padding = -1}); }},
      {"conv1d: causal is true and padding is 1; a causal convolution has its own padding, and padding must be 0",
       [&] { conv1d(x, w, b, {.padding = 1, .causal = true}); }},
  });
}

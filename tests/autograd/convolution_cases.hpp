// Functions with values of PyTorch in tests/reference/convolution_torch.json, by their titles there; convolutions as
// plain loops.
#pragma once
#include <heed/autograd/convolution.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/autograd/fused_support.hpp"

namespace heed::test {

using ConvolutionInputs = std::vector<Tensor>;

struct TorchCase {
  const char* title;
  const char* inputs;  // their names
  std::function<Tensor(const ConvolutionInputs&)> f;
};

// Compares f with PyTorch: the value and the gradients of all inputs, in float64 and in float32, with the axes in two
// orders in memory.
inline void check_torch_case(const TorchCase& c) {
  CAPTURE(std::string(c.title));
  const StoredCases& all = stored_cases("convolution_torch.json");
  const Named& expected = all.cases.at(c.title);
  for (const DType type : {DType::float64, DType::float32}) {
    const double bound = type == DType::float64 ? 1e-12 : 1e-5;
    ConvolutionInputs inputs;
    std::istringstream names(c.inputs);
    for (std::string name; names >> name;) inputs.push_back(all.inputs.at(name).to(type));
    const auto compare = [&](const Run& r) {
      CHECK(close(r.y.to(DType::float64), expected.at("y"), bound, bound));
      for (std::size_t i = 0; i < inputs.size(); ++i)
        CHECK(close(r.gradients[i].to(DType::float64), expected.at("d" + std::to_string(i)), bound, bound));
    };
    const Tensor dy = expected.at("dy").to(type);
    const Run r = run(c.f, inputs, dy);
    CHECK(r.y.is_contiguous());
    compare(r);
    // x with the channels as the last axis in memory: the axes between are moved one place.
    std::vector<int> last = {0}, first = {0, inputs[0].rank() - 1};
    for (int a = 2; a < inputs[0].rank(); ++a) last.push_back(a), first.push_back(a - 1);
    last.push_back(1);
    ConvolutionInputs turned = inputs;
    turned[0] = inputs[0].permute(last).contiguous();
    Run t = run(
        [&](const ConvolutionInputs& x) {
          ConvolutionInputs views = x;
          views[0] = x[0].permute(first);
          return c.f(views);
        },
        turned, dy);
    t.gradients[0] = t.gradients[0].permute(first);
    compare(t);
  }
}

// A convolution of images as plain loops in float64: y, and the gradients of x, weight and bias for dy.
struct PlainConvolution {
  Tensor x, weight, bias;  // float64
  Conv2dOptions options;
  bool causal = false;  // pads before W only

  Run run(const Tensor& dy) const {
    const Shape &xs = x.shape(), &ws = weight.shape(), &ys = dy.shape();
    Run r{
        Tensor::empty(ys, DType::float64),
        {Tensor::zeros(xs, DType::float64), Tensor::zeros(ws, DType::float64), Tensor::zeros({ws[0]}, DType::float64)}};
    const Index out = ws[0] / options.groups, pad_w = causal ? options.dilation.w * (ws[3] - 1) : options.padding.w;
    const auto at = [](const Tensor& t, Index a, Index b, Index c, Index d) {
      const Shape& s = t.shape();
      return t.ptr<double>() + ((a * s[1] + b) * s[2] + c) * s[3] + d;
    };
    for (Index n = 0; n < ys[0]; ++n)
      for (Index o = 0; o < ys[1]; ++o)
        for (Index i = 0; i < ys[2]; ++i)
          for (Index j = 0; j < ys[3]; ++j) {
            const double g = *at(dy, n, o, i, j);
            double sum = bias.ptr<double>()[o];
            r.gradients[2].ptr<double>()[o] += g;
            for (Index c = 0; c < ws[1]; ++c)
              for (Index a = 0; a < ws[2]; ++a)
                for (Index b = 0; b < ws[3]; ++b) {
                  const Index h = i * options.stride.h + a * options.dilation.h - options.padding.h,
                              w = j * options.stride.w + b * options.dilation.w - pad_w;
                  if (h < 0 || h >= xs[2] || w < 0 || w >= xs[3]) continue;
                  const Index channel = o / out * ws[1] + c;
                  sum += *at(weight, o, c, a, b) * *at(x, n, channel, h, w);
                  *at(r.gradients[0], n, channel, h, w) += g * *at(weight, o, c, a, b);
                  *at(r.gradients[1], o, c, a, b) += g * *at(x, n, channel, h, w);
                }
            *at(r.y, n, o, i, j) = sum;
          }
    return r;
  }
};

}  // namespace heed::test

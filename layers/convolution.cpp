// Layers of convolutions.
#include <cmath>
#include <heed/autograd/shape_ops.hpp>
#include <heed/layers/attention/detail/row_lengths.hpp>
#include <heed/layers/convolution.hpp>
#include <heed/layers/linear.hpp>

namespace heed {
namespace {

// A weight [out, in / groups, kernel...] without values.
Parameter weight_of(const char* layer, Index in, Index out, Index groups, const Shape& kernel) {
  require(in > 0 && out > 0 && groups > 0 && in % groups == 0 && out % groups == 0, layer, ": in_channels is ", in,
          ", out_channels is ", out, " and groups is ", groups,
          "; they must be 1 or more, and groups must divide both numbers of channels");
  for (const Index k : kernel) require(k > 0, layer, ": kernel_size is ", kernel, "; it must be 1 or more");
  return Parameter(Tensor::empty(Shape{out, in / groups} + kernel));
}

// Draws the values of the weight, and makes a bias unless there is none.
void draw(Parameter& weight, Parameter& bias, bool with_bias, Rng& rng) {
  const double bound = 1 / std::sqrt(static_cast<double>(weight.numel() / weight.dim(0)));
  init::uniform_(weight, rng, -bound, bound);
  if (!with_bias) return;
  bias = Parameter(Tensor::empty({weight.dim(0)}));
  init::uniform_(bias, rng, -bound, bound);
}

}  // namespace

Conv1d::Conv1d(Exactly<Index> in_channels, Exactly<Index> out_channels, Exactly<Index> kernel_size, Rng& rng,
               const Conv1dLayerOptions& o)
    : weight(weight_of("Conv1d", in_channels, out_channels, o.groups, {kernel_size})),
      options{o.stride, o.padding, o.dilation, o.groups, o.causal} {
  draw(weight, bias, o.bias, rng);
}

Tensor Conv1d::decode(In x, Conv1dState& state, const Tensor& lengths) const {
  check(options.causal && options.stride == 1, x.where(), "Conv1d: causal is ", options.causal, " and the stride is ",
        options.stride, "; to decode, a convolution must be causal and have a stride of 1");
  check(x.rank() == 3, x.where(), "Conv1d: x is ", x.tensor(), "; it must be [B, T, in] to decode");
  const Index kept = options.dilation * (weight.dim(2) - 1);
  if (kept == 0) return (*this)({x->t(), x.where()}).t();
  if (!state.inputs.defined()) state.inputs = Tensor::zeros({x.dim(0), kept, x.dim(2)}, x.dtype());
  const Tensor all = concatenate({state.inputs, x.tensor()}, 1);
  const Conv1dOptions reads{.dilation = options.dilation, .groups = options.groups};
  const Tensor y = conv1d({all.t(), x.where()}, weight, bias, reads).t();
  state.inputs = lengths.defined() ? detail::rows_after(all.unsqueeze(1), lengths, kept).squeeze(1)
                                   : all.slice(1, x.dim(1), x.dim(1) + kept);
  return y;
}

Conv2d::Conv2d(Exactly<Index> in_channels, Exactly<Index> out_channels, HeightWidth kernel_size, Rng& rng,
               const Conv2dLayerOptions& o)
    : weight(weight_of("Conv2d", in_channels, out_channels, o.groups, {kernel_size.h, kernel_size.w})),
      options{o.stride, o.padding, o.dilation, o.groups} {
  draw(weight, bias, o.bias, rng);
}

}  // namespace heed

// Convolutions over sequences and images: layers.
//
// Example:
//
//   Rng rng(1);
//   const Conv1d layer(8, 16, 3, rng, {.causal = true});
//   const Tensor text = rng.normal({2, 10, 8});  // [B, T, C]
//   const Tensor y = layer(text.t()).t();        // [2, 10, 16]
//   Conv1dState state;
//   const Tensor first = layer.decode(text.slice(1, 0, 9), state), last = layer.decode(text.slice(1, 9, 10), state);
//   const Conv2d image(3, 4, {3, 3}, rng, {.stride = 2, .padding = 1});
//   const Tensor z = image(rng.normal({2, 3, 8, 8}));  // [2, 4, 4, 4]
#pragma once
#include <heed/autograd/convolution.hpp>
#include <heed/core/members.hpp>
#include <heed/core/random.hpp>

namespace heed {

// Options of Conv1d: those of conv1d(), and whether there is a bias.
struct Conv1dLayerOptions {
  Index stride = 1;     // as in Conv1dOptions
  Index padding = 0;    // as in Conv1dOptions
  Index dilation = 1;   // as in Conv1dOptions
  Index groups = 1;     // as in Conv1dOptions
  bool bias = true;     // false: no bias
  bool causal = false;  // as in Conv1dOptions
};

// The last inputs of a causal convolution, from which decoding continues.
struct Conv1dState {
  Tensor inputs = {};  // [B, dilation * (kernel_size - 1), in]; undefined before the first step

  void members(MemberVisitor& visit) { visit.buffer("inputs", inputs); }  // inputs
};

// A convolution over sequences, as torch.nn.Conv1d.
struct Conv1d {
  Parameter weight;       // [out, in / groups, kernel_size]
  Parameter bias;         // [out], or undefined
  Conv1dOptions options;  // of conv1d()

  // Initial values are uniform in +-1/sqrt(in / groups * kernel_size), as in PyTorch. Throws Error for sizes below 1,
  // and unless groups divides both numbers of channels.
  Conv1d(Exactly<Index> in_channels, Exactly<Index> out_channels, Exactly<Index> kernel_size, Rng& rng,
         const Conv1dLayerOptions& layer_options = {});

  Tensor operator()(In x) const { return conv1d(x, weight, bias, options); }  // [N, in, L] -> [N, out, L']
  // The result for the next positions: x [B, T, in] -> [B, T, out], as decoders have it. The state has the earlier
  // inputs that the convolution reads, initially zeros, and gets the new ones. Row b has the first lengths[b] of its T
  // positions (int32 [B]; undefined: all). Throws Error unless the convolution is causal, with a stride of 1.
  Tensor decode(In x, Conv1dState& state, const Tensor& lengths = {}) const;

  void members(auto&& visit) {  // weight, bias
    visit("weight", weight);
    visit("bias", bias);
  }
};

// Options of Conv2d: those of conv2d(), and whether there is a bias.
struct Conv2dLayerOptions {
  HeightWidth stride = 1;    // as in Conv2dOptions
  HeightWidth padding = 0;   // as in Conv2dOptions
  HeightWidth dilation = 1;  // as in Conv2dOptions
  Index groups = 1;          // as in Conv2dOptions
  bool bias = true;          // false: no bias
};

// A convolution over images, as torch.nn.Conv2d.
struct Conv2d {
  Parameter weight;       // [out, in / groups, KH, KW]
  Parameter bias;         // [out], or undefined
  Conv2dOptions options;  // of conv2d()

  // Initial values and errors as for Conv1d.
  Conv2d(Exactly<Index> in_channels, Exactly<Index> out_channels, HeightWidth kernel_size, Rng& rng,
         const Conv2dLayerOptions& layer_options = {});

  Tensor operator()(In x) const { return conv2d(x, weight, bias, options); }  // [N, in, H, W] -> [N, out, H', W']

  void members(auto&& visit) {  // weight, bias
    visit("weight", weight);
    visit("bias", bias);
  }
};

}  // namespace heed

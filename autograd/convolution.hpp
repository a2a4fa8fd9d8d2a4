// Convolutions, pooling and padding over sequences [N, C, L] and images [N, C, H, W].
//
// Example:
//
//   Rng rng(1);
//   const Tensor weight = rng.normal({16, 8, 3});
//   const Tensor x = rng.normal({2, 8, 10});                                  // [N, C, L]
//   const Tensor y = conv1d(x, weight, Tensor(), {.padding = 1});             // [2, 16, 10]
//   const Tensor text = rng.normal({2, 10, 8});                               // [B, T, C], as layers have it
//   const Tensor z = conv1d(text.t(), weight, Tensor(), {.causal = true}).t();  // [2, 10, 16], without a copy
//   const Tensor shorter = avg_pool1d(y, 2);                                  // [2, 16, 5]
#pragma once
#include <heed/autograd/record.hpp>
#include <heed/core/tensor.hpp>

namespace heed {

// ---- Layout ----

// Axes are in PyTorch's order, channels before positions, and memory may be in any order. If the channels are next to
// each other in memory, as in text.t() of a sequence [B, T, C] or image.permute({0, 3, 1, 2}) of [N, H, W, C], they are
// also next to each other in the result: conv1d(text.t(), ...).t() is a contiguous [B, T, C'], and nothing is copied.
// For other x the result is contiguous. Convolutions compute in this order of memory and copy an x that is not in it.

// One number for both axes of an image, or one for each: {.stride = 2}, {.padding = {1, 0}}.
struct HeightWidth {
  Index h = 0, w = 0;  // along H and along W

  // Two zeros; the same number twice; two numbers.
  HeightWidth() = default;
  template <class N>
  requires(detail::kWhole<N>) HeightWidth(N both) : HeightWidth(both, both) {}
  HeightWidth(Exactly<Index> height, Exactly<Index> width) : h(height), w(width) {}
  template <detail::NotWhole N>
  HeightWidth(N) = delete;  // must be a whole number
};

// ---- Convolutions ----

// y[n, o, l] = bias[o] + the sum over c and k of weight[o, c, k] * x[n, c, l * stride + k * dilation - padding]. x is 0
// outside of its L positions. With groups, the C channels and the filters are divided into groups of equal size,
// and a filter reads the channels of its group. Number of results: floor((L + 2 padding - dilation (K - 1) - 1) /
// stride) + 1. A sequence without positions has a result without positions.

// Options of conv1d(), in the order of PyTorch's arguments.
struct Conv1dOptions {
  Index stride = 1;    // positions between two results
  Index padding = 0;   // positions of 0 before the first position and after the last
  Index dilation = 1;  // distance of the positions that a filter reads
  Index groups = 1;    // of channels and filters
  // Pads dilation * (K - 1) positions before the first and none after: y[l] reads no x after l * stride.
  bool causal = false;
  // int32 [N, L], for rows that hold several documents: where each position's document begins, as in AttentionCall. y
  // of a document reads no other document. Requires causal, stride 1, and one channel and one filter per group.
  Tensor documents = {};
};

// As torch.nn.functional.conv1d: x [N, C, L], weight [out, C / groups, K], bias [out] or undefined -> [N, out, L'].
// Types as for linear(): all float64, or all float32, where x and weight may also be bfloat16; a bfloat16 weight or a
// bfloat16 MatmulPrecision rounds x. The result is float32 or float64. If each group has one channel and one filter, no
// products are computed and nothing is rounded. Throws Error for other shapes and types, if the filter is longer than x
// with its padding, and for `causal` with a padding.
//   dx = the transposed convolution of dy;  dweight[o, c, k] = the sum of dy[n, o, l] * x[...];  dbias = sum of dy
Tensor conv1d(In x, In weight, In bias, const Conv1dOptions& options = {});

// Options of conv2d(), in the order of PyTorch's arguments: see Conv1dOptions.
struct Conv2dOptions {
  HeightWidth stride = 1;    // positions between two results
  HeightWidth padding = 0;   // positions of 0 on each side
  HeightWidth dilation = 1;  // distance of the positions that a filter reads
  Index groups = 1;          // of channels and filters
};

// As torch.nn.functional.conv2d: x [N, C, H, W], weight [out, C / groups, KH, KW], bias [out] or undefined ->
// [N, out, H', W']. Each axis is as in conv1d(), and so are types and errors.
Tensor conv2d(In x, In weight, In bias, const Conv2dOptions& options = {});

// ---- Pooling ----

// A pooling reduces windows of `kernel_size` positions of each channel. Takes floating types and returns the same type;
// bfloat16 is computed in float32 and rounded once. Throws Error for other shapes and types, for a padding of more than
// half of the kernel, and if the kernel is longer than x with its padding.

// Options of max_pool1d(), in the order of PyTorch's arguments.
struct MaxPool1dOptions {
  Index stride = 0;        // 0: kernel_size
  Index padding = 0;       // positions of -infinity on both sides
  Index dilation = 1;      // distance of the positions of a window
  bool ceil_mode = false;  // also a last window that reaches beyond x, if it begins in x or in the padding before it
};
// The same for images.
struct MaxPool2dOptions {
  HeightWidth stride = 0;    // 0: kernel_size
  HeightWidth padding = 0;   // positions of -infinity on each side
  HeightWidth dilation = 1;  // distance of the positions of a window
  bool ceil_mode = false;    // as for max_pool1d()
};

// The largest element of each window: x [N, C, L] -> [N, C, L'], x [N, C, H, W] -> [N, C, H', W']. NaN if an element is
// NaN. The gradient goes to the first of equal elements.
Tensor max_pool1d(In x, Exactly<Index> kernel_size, const MaxPool1dOptions& options = {});
Tensor max_pool2d(In x, HeightWidth kernel_size, const MaxPool2dOptions& options = {});

// Options of avg_pool1d(), in the order of PyTorch's arguments.
struct AvgPool1dOptions {
  Index stride = 0;               // 0: kernel_size
  Index padding = 0;              // positions of 0 on both sides
  bool ceil_mode = false;         // as for max_pool1d()
  bool count_include_pad = true;  // false: the mean of the positions in x, without the padding
};
// The same for images.
struct AvgPool2dOptions {
  HeightWidth stride = 0;         // 0: kernel_size
  HeightWidth padding = 0;        // positions of 0 on each side
  bool ceil_mode = false;         // as for max_pool1d()
  bool count_include_pad = true;  // as for avg_pool1d()
};

// The mean of each window. Shapes as for max_pool1d() and max_pool2d().
Tensor avg_pool1d(In x, Exactly<Index> kernel_size, const AvgPool1dOptions& options = {});
Tensor avg_pool2d(In x, HeightWidth kernel_size, const AvgPool2dOptions& options = {});

// ---- Padding ----

// As torch.nn.functional.pad in its mode "constant": `amounts` are the elements to add before and after, in pairs from
// the last axis: {left, right} or {left, right, top, bottom}. A negative amount removes elements. Takes every dtype
// except quantized ones. Throws Error for an odd number of amounts, more pairs than axes, and a size below 0.
Tensor pad(In x, const Shape& amounts, double value = 0);

}  // namespace heed

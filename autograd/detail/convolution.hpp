// Convolutions as matrix products, on contiguous tensors whose channels are the last axis.
#pragma once
#include <heed/autograd/detail/windows.hpp>
#include <heed/autograd/record.hpp>

namespace heed::detail {

// The sizes of a convolution. A row is a position of the result; its values are those of all filters.
struct Convolution {
  Index batch = 0;
  Windows h = {}, w = {};
  Index groups = 1, channels = 0, filters = 0;  // channels and filters per group
  // The order of the numbers in windows and filters: by channel, then by tap, as in the weight; else by tap, then by
  // channel. With few rows, the order of the weight saves the time of reading and writing all of the weight.
  bool by_channel = false;

  Index width() const { return groups * channels; }            // all channels
  Index outputs() const { return groups * filters; }           // all filters
  Index rows() const { return batch * h.count * w.count; }     // of the result
  Index positions() const { return batch * h.size * w.size; }  // rows of x
  Index taps() const { return h.kernel * w.kernel; }
  Index depth() const { return taps() * channels; }  // numbers that a filter reads
  bool is_depthwise() const { return groups > 1 && channels == 1 && filters == 1; }
};

// The convolution that computes dx from dy if the strides are 1. Its weights are transposed_filters().
Convolution transposed(const Convolution& c);

// Whether c is computed faster in the order of the weight.
bool suits_order_of_weight(const Convolution& c);

// The weight [out, C / groups, KH, KW] as products read it, in c's order: [out, depth].
Tensor filters_of(const Convolution& c, const Tensor& weight);
// The filters of transposed(c): [groups * channels, taps * filters], with the taps in reverse order.
Tensor transposed_filters(const Convolution& c, const Tensor& weight);

// y [rows, outputs] (+)= bias + the products of the rows' windows of x and the filters [outputs, depth]. x is
// [positions, width]. `products`: see Gemm.
struct ConvolutionTensors {
  Tensor x = {}, filters = {}, bias = {}, y = {};
};
void convolve(const Convolution& c, const ConvolutionTensors& t, bool accumulate, DType products);

// The gradient of the weight, `dweight` [out, C / groups, KH, KW], contiguous: (+)= the sums over rows of dy [rows,
// outputs] times the windows of x.
void weight_gradient(const Convolution& c, const Tensor& x, const Tensor& dy, const Target& dweight, DType products);

// dx [positions, width] (+)= the transposed convolution of dy, for any strides. `weight` is [out, C / groups, KH, KW].
void input_gradient(const Convolution& c, const Tensor& dy, const Tensor& weight, const Target& dx, DType products);

// ---- Depthwise: one channel and one filter per group. Tensors are float32 or float64 ----

// `documents`: undefined or int32 [rows], as in Conv1dOptions; one row of x per row of the result.

// y [rows, C] (+)= bias + the sums over taps of taps[tap, c] * x.
void depthwise(const Convolution& c, const Tensor& x, const Tensor& taps, const Tensor& bias, const Tensor& documents,
               const Tensor& y);
void depthwise_input_gradient(const Convolution& c, const Tensor& dy, const Tensor& taps, const Tensor& documents,
                              const Target& dx);
// dtaps [taps, C].
void depthwise_taps_gradient(const Convolution& c, const Tensor& x, const Tensor& dy, const Tensor& documents,
                             const Tensor& dtaps);

}  // namespace heed::detail

// Normalisation: to mean 0 and variance 1 with a scale and a shift, and to weights that add up to 1.
//
// Example:
//
//   Rng rng(1);
//   const Tensor x = rng.normal({2, 8});
//   const Tensor y = layer_norm(x, Tensor::ones({8}), Tensor::zeros({8}));
//   const Tensor weights = softmax(x);  // over the last axis
#pragma once
#include <heed/autograd/record.hpp>

namespace heed {

// ---- Layer norm and its relatives ----

// Normalisation over the last axis, with the scale and the shift in the same pass. Rows whose squares overflow or
// underflow are scaled first, so that the result is right; it is NaN, or infinite, where deviations from the mean
// themselves overflow, and NaN throughout a row that holds NaN or an infinity. Backward reads x; inside a
// MatmulPrecision of bfloat16 it reads the normalised values of a float32 x, (x - mean) / sqrt(variance + eps), as
// bfloat16: half the memory.

// y = weight * (x - mean) / sqrt(variance + eps) + bias, with the mean and the (biased) variance of the last axis.
// What rounding takes off the mean is taken into account, so that rows far from 0 are exact too.
// x [..., n]; weight and bias [n], either of them an undefined Tensor where it is not wanted. float32 or float64.
// Throws Error for other shapes and types, and for a negative eps. Ba, Kiros and Hinton, "Layer normalization", 2016.
Tensor layer_norm(In x, In weight, In bias, double eps = 1e-5);

// y = weight * x / sqrt(mean(x^2) + eps) over the last axis. x [..., n]; weight [n] or undefined.
// Zhang and Sennrich, "Root mean square layer normalization", NeurIPS 2019.
Tensor rms_norm(In x, In weight, double eps = 1e-6);

// y = x / |x|, the direction of the last axis: x [..., n], n of 1 or more, of any size, subnormal numbers included.
// Where |x| is 0, y is 0 and passes no gradient on. (torch.nn.functional.normalize divides by 1e-12 where |x| is less.)
Tensor normalize(In x);

// ---- Softmax ----

// Softmax over any axis of floating tensors; of bfloat16, computed in float32 and rounded once. A scalar counts as a
// vector of one element.

// e^x / sum(e^x) over the axis, with the greatest x subtracted first, so that nothing overflows. An element of -inf
// gets 0; where all are -inf, one is +inf or one is NaN, the whole row is NaN, as in PyTorch (attention masks by
// itself: a row that is masked out is 0 there). Errors: other dtypes, an axis out of range.
Tensor softmax(In x, int axis = -1);

// x - log(sum(e^x)), without the loss of softmax's small values. NaN rows as above; -inf stays -inf.
Tensor log_softmax(In x, int axis = -1);
template <detail::NotWhole Axis>
Tensor softmax(In x, Axis axis) = delete;
template <detail::NotWhole Axis>
Tensor log_softmax(In x, Axis axis) = delete;

}  // namespace heed

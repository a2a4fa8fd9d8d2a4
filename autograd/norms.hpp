// Normalisation over the last axis, with the scale and the shift in the same pass. Rows whose squares overflow or
// underflow are scaled first, so that the result is right; it is NaN, or infinite, where deviations from the mean
// themselves overflow, and NaN throughout a row that holds NaN or an infinity.
#pragma once
#include <heed/autograd/record.hpp>

namespace heed {

// y = weight * (x - mean) / sqrt(variance + eps) + bias, with the mean and the (biased) variance of the last axis.
// What rounding takes off the mean is taken into account, so that rows far from 0 are exact too.
// x [..., n]; weight and bias [n], either of them an undefined Tensor where it is not wanted. float32 or float64.
// Throws Error for other shapes and types, and for a negative eps. Ba, Kiros and Hinton, "Layer normalization", 2016.
Tensor layer_norm(In x, In weight, In bias, double eps = 1e-5);

// y = weight * x / sqrt(mean(x^2) + eps) over the last axis. x [..., n]; weight [n] or undefined.
// Zhang and Sennrich, "Root mean square layer normalization", NeurIPS 2019.
Tensor rms_norm(In x, In weight, double eps = 1e-6);

// y = x / |x|, the direction of the last axis: x [..., n], n of 1 or more. Where |x| is 0, or so small that 1 / |x|
// overflows, y is 0 and passes no gradient on.
Tensor normalize(In x);

}  // namespace heed

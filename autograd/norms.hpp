// Normalisation: layer norm, RMS norm, vectors of length 1, group norm, batch norm, and softmax.
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

// ---- Layer norm, RMS norm, unit vectors ----

// Normalisation over the last axis, with scale and shift in the same pass. Rows whose squares overflow or underflow are
// scaled first, so that the result is right. The result is NaN or infinite where deviations from the mean themselves
// overflow. A row that contains NaN or an infinity is all NaN.
// Backward reads x. Inside a bfloat16 MatmulPrecision, backward of a float32 x reads the normalised values (x - mean) /
// sqrt(variance + eps) in bfloat16 instead, which takes half the memory.

// y = weight * (x - mean) / sqrt(variance + eps) + bias, with the mean and the biased variance of the last axis. The
// rounding error of the mean is corrected, so that rows far from 0 are exact too. x [..., n], float32 or float64;
// weight and bias [n], each may be undefined. Throws Error for other shapes and types, and for a negative eps. Ba,
// Kiros and Hinton, "Layer normalization", 2016.
Tensor layer_norm(In x, In weight, In bias, double eps = 1e-5);

// y = weight * x / sqrt(mean(x^2) + eps) over the last axis. x [..., n]; weight [n] or undefined. Types and errors as
// for layer_norm(). Zhang and Sennrich, "Root mean square layer normalization", NeurIPS 2019.
Tensor rms_norm(In x, In weight, double eps = 1e-6);

// y = x / |x|, the unit vector of the last axis: x [..., n], n >= 1, of any magnitude, including subnormal numbers.
// Where |x| is 0, y is 0 and passes on no gradient. (torch.nn.functional.normalize divides by at least 1e-12.) Types
// and errors as for layer_norm().
Tensor normalize(In x);

// ---- Group norm, batch norm ----

// Normalisation of x [N, C, ...], float32 or float64, whose axis 1 has the channels; weight and bias [C], each may be
// undefined. The order of the result in memory is that of conv1d() (autograd/convolution.hpp). Throws Error for other
// shapes and types, and for a negative eps.

// y = weight * (x - mean) / sqrt(variance + eps) + bias, with the mean and the biased variance over the positions of a
// group of C / groups channels, for each of the N examples. Throws Error unless groups divides C. As
// torch.nn.functional.group_norm. Wu and He, "Group normalization", ECCV 2018.
Tensor group_norm(In x, Exactly<Index> groups, In weight, In bias, double eps = 1e-5);

// The same with the mean and the biased variance of each channel over all examples and positions. BatchNorm
// (layers/norm.hpp) keeps running statistics, too. Ioffe and Szegedy, "Batch normalization", ICML 2015.
Tensor batch_norm(In x, In weight, In bias, double eps = 1e-5);

// The same with given statistics, mean and variance [C], through which gradients flow.
Tensor batch_norm(In x, In mean, In variance, In weight, In bias, double eps = 1e-5);

// ---- Softmax ----

// Softmax over any axis of floating tensors. bfloat16 is computed in float32 and rounded once. A scalar counts as a
// vector of one element. Throws Error for other dtypes and for an axis out of range.

// e^x / sum(e^x) over the axis, with the maximum subtracted first, so that nothing overflows. An element of -inf gives
// 0. A row is all NaN if every element is -inf, or if one is +inf or NaN, as in PyTorch. (Attention ops give 0 for a
// row that is masked out.)
Tensor softmax(In x, Exactly<int> axis = -1);

// x - log(sum(e^x)), which stays accurate where softmax(x) is small. NaN rows as above; -inf stays -inf.
Tensor log_softmax(In x, Exactly<int> axis = -1);

}  // namespace heed

// Running sums, and products. Floating types, and sums of int32 and bool8; floating ones are accumulated in float64, in
// the order of the elements, and rounded once. A scalar counts as a vector of one element.
#pragma once
#include <heed/autograd/record.hpp>
#include <heed/core/axes.hpp>

namespace heed {

// y[i] = x[0] + ... + x[i] along the axis. Takes int32 and bool8 too: the sums are int32, exact and constants for
// autodiff (in PyTorch they are int64); Error where int32 does not hold one.
Tensor cumsum(In x, int axis);

// The product over the axes (none: all); 1 of no elements. The derivative divides by nothing: it is exact where
// elements are 0.
Tensor prod(In x, const Axes& axes = {}, bool keepdim = false);

}  // namespace heed

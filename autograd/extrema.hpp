// The greatest and the least elements, and where they are; over any axes: none given means all.
#pragma once
#include <heed/autograd/record.hpp>
#include <heed/core/reduce.hpp>
#include <optional>

namespace heed {

// The greatest (least) value; NaN where an element is NaN. Takes float32 and float64. The gradient goes to the first
// extremal element in row-major order, as PyTorch's max(dim) has it (its amax() shares among equals). Error: no
// elements to choose from.
Tensor max(In x, const Axes& axes = {}, bool keepdim = false);
Tensor min(In x, const Axes& axes = {}, bool keepdim = false);

// Where along the axis (in the flattened tensor, if none is given) the first greatest (least) element stands: int32. A
// NaN counts as greatest and as least.
Tensor argmax(In x, std::optional<int> axis = {}, bool keepdim = false);
Tensor argmin(In x, std::optional<int> axis = {}, bool keepdim = false);

}  // namespace heed

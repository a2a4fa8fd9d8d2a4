// The greatest and the least elements, and where they are. Where several axes may be given, none means all.
#pragma once
#include <heed/autograd/record.hpp>
#include <heed/core/axes.hpp>
#include <optional>

namespace heed {

// The greatest (least) value; NaN where an element is NaN. Takes floating types and int32 (masks have any() and
// all()) and gives the same. Equal extremal elements share the gradient evenly, with axes and without, as in PyTorch's
// amax(), amin() and max() of all (its max(dim) gives it to one); of NaN, the NaNs do. int32 has none. Error: no elements
// to choose from.
Tensor max(In x, const Axes& axes = {}, bool keepdim = false);
Tensor min(In x, const Axes& axes = {}, bool keepdim = false);

// Where along the axis (in the flattened tensor, if none is given) the first greatest (least) element stands: int32. A
// NaN counts as greatest and as least. Takes what max() and min() do.
Tensor argmax(In x, std::optional<int> axis = {}, bool keepdim = false);
Tensor argmin(In x, std::optional<int> axis = {}, bool keepdim = false);

// Whether any, or every, element of a bool8 mask is true; false, and true, of no elements.
Tensor any(In mask, const Axes& axes = {}, bool keepdim = false);
Tensor all(In mask, const Axes& axes = {}, bool keepdim = false);

// The k greatest (or least) values along the axis, in falling (rising) order, and where along it they stand: of equal
// ones the first comes first. Both have k in the place of the axis's size; the indices are int32. NaN counts as
// greatest, as in PyTorch. The gradient of a value goes to its element. Floating types; 0 <= k <= the size of the
// axis.
struct TopK {
  Tensor values, indices;
};
TopK top_k(In x, Index k, int axis = -1, bool largest = true);

}  // namespace heed

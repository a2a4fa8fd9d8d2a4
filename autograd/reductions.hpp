// Reductions over any axes: none given means all. The reduced axes are dropped, or kept with size 1 by `keepdim`. Sums,
// extremes and where they are, running sums.
//
// Example:
//
//   Rng rng(1);
//   const Tensor x = rng.normal({2, 3, 4});
//   const Tensor total = sum(x), rows = mean(x, {0, 2}), greatest = max(x, -1, true);  // [], [3], [2, 3, 1]
//   const Tensor where_it_is = argmax(x, -1), so_far = cumsum(x, 1);
#pragma once
#include <heed/autograd/record.hpp>
#include <heed/core/tensor.hpp>
#include <optional>

namespace heed {

// ---- Sums and moments ----

// Reductions over any axes: none given means all. The reduced axes are dropped, or kept with size 1 by `keepdim`. All
// take floating types, and give what they are given (of bfloat16, computed in float32 and rounded once); sum() takes
// int32 and bool8 too. The same bits at any number
// of threads. Sums are trees: in float32 the error of a sum of n values is at most about (25 + log2(n)) half units in
// the last place of the sum of their absolute values (measured: tests/core/reduce_test.cpp). Errors: other dtypes, axes
// out of range or named twice.

// 0 of no elements. Of int32, and of bool8, where it counts what is true, the sum is int32, exact and a constant for
// autodiff (in PyTorch it is int64); Error where int32 does not hold it.
Tensor sum(In x, const Axes& axes = {}, bool keepdim = false);
Tensor mean(In x, const Axes& axes = {}, bool keepdim = false);  // NaN of no elements; Error for int32 and bool8

// The sum of squared deviations is divided by n - correction, or by 0 where that is less (torch.var's): 1 is the
// unbiased estimate, 0 the mean square.
struct VarianceOptions {
  double correction = 1;
  bool keepdim = false;
};
Tensor variance(In x, const Axes& axes = {}, VarianceOptions options = {});
// Its square root (torch.std). Where it is 0 the gradient is taken as 0. In both the rounding of the mean is made good,
// so that they are exact however far x is from 0; squares that overflow or underflow are taken of scaled x.
Tensor stddev(In x, const Axes& axes = {}, VarianceOptions options = {});

// log(sum(e^x)), with the greatest x subtracted first. -inf of no elements and where all are -inf (the gradient is 0
// there); +inf where an element is +inf (its gradient is NaN, as in PyTorch).
Tensor logsumexp(In x, const Axes& axes = {}, bool keepdim = false);

// (sum |x|^p)^(1/p) for p > 0; the greatest |x| where p is infinite. 0 of no elements. Powers that overflow or
// underflow are taken of scaled x, so that the norm is right where it fits its type. Where the norm is 0 the gradient
// is taken as 0; that of p = inf is shared by all greatest |x|. norm(x, {-1}, {.p = 1}): a number alone, which is p in
// PyTorch and an axis in the ops above, does not compile.
struct NormOptions {
  double p = 2;
  bool keepdim = false;
};
Tensor norm(In x, const Axes& axes = {}, NormOptions options = {});
template <class Number, class... Rest>
requires std::is_arithmetic_v<Number> Tensor norm(In x, Number, Rest&&...)
= delete;

// ---- Extremes ----

// The greatest and the least elements, and where they are. Where several axes may be given, none means all.

// The greatest (least) value; NaN where an element is NaN. max(x, 0.0) does not compile: the greater of each element
// and a number is maximum(x, 0.0). Takes floating types and int32 (masks have any() and all()) and gives the same.
// Equal extremal elements share the gradient evenly, with axes and without, as in PyTorch's amax(), amin() and max() of
// all (its max(dim) gives it to one); of NaN, the NaNs do. int32 has none. Error: no elements to choose from.
Tensor max(In x, const Axes& axes = {}, bool keepdim = false);
Tensor min(In x, const Axes& axes = {}, bool keepdim = false);

// Where along the axis (in the flattened tensor, if none is given) the first greatest (least) element stands: int32. A
// NaN counts as greatest and as least. Takes what max() and min() do.
Tensor argmax(In x, std::optional<int> axis = {}, bool keepdim = false);
Tensor argmin(In x, std::optional<int> axis = {}, bool keepdim = false);
template <detail::NotWhole Axis, class... Rest>
Tensor argmax(In x, Axis axis, Rest&&...) = delete;
template <detail::NotWhole Axis, class... Rest>
Tensor argmin(In x, Axis axis, Rest&&...) = delete;

// Whether any, or every, element of a bool8 mask is true; false, and true, of no elements.
Tensor any(In mask, const Axes& axes = {}, bool keepdim = false);
Tensor all(In mask, const Axes& axes = {}, bool keepdim = false);

// The k greatest (or least) values along the axis, in falling (rising) order, and where along it they stand: of equal
// ones the first comes first. Both have k in the place of the axis's size; the indices are int32. NaN counts as
// greatest, as in PyTorch. The gradient of a value goes to its element. Floating types; 0 <= k <= the size of the
// axis.
struct TopK {
  Tensor values = {}, indices = {};
};
TopK top_k(In x, Index k, int axis = -1, bool largest = true);
template <detail::NotWhole Count, class... Rest>
TopK top_k(In x, Count k, Rest&&...) = delete;
template <detail::NotWhole Axis, class... Rest>
TopK top_k(In x, Index k, Axis axis, Rest&&...) = delete;

// ---- Running sums, products ----

// Running sums, and products. Floating types, and sums of int32 and bool8; floating ones are accumulated in float64, in
// the order of the elements, and rounded once. A scalar counts as a vector of one element.

// y[i] = x[0] + ... + x[i] along the axis. Takes int32 and bool8 too: the sums are int32, exact and constants for
// autodiff (in PyTorch they are int64); Error where int32 does not hold one.
Tensor cumsum(In x, int axis);
template <detail::NotWhole Axis>
Tensor cumsum(In x, Axis axis) = delete;

// The product over the axes (none: all); 1 of no elements. The derivative divides by nothing: it is exact where
// elements are 0.
Tensor prod(In x, const Axes& axes = {}, bool keepdim = false);

}  // namespace heed

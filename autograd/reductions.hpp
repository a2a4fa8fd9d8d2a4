// Reductions over axes: sums and moments, extremes and their positions, running sums, and products. No axes given means
// all axes. The reduced axes are dropped, or kept with size 1 by `keepdim`.
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

// Takes floating types and returns the same type; bfloat16 is computed in float32 and rounded once. sum() also takes
// int32 and bool8. Sums are trees, with the same bits at any number of threads. In float32 the error of a sum of n
// values is at most about (25 + log2(n)) half units in the last place of the sum of their absolute values (measured in
// tests/core/reduce/reduce_test.cpp). Throws Error for other dtypes, and for axes that are out of range or repeated.

// The sum; 0 of no elements. For int32, and for bool8, where it counts the true elements, the sum is int32 (int64 in
// PyTorch), exact, and a constant for autodiff. Throws Error if the sum does not fit int32.
Tensor sum(In x, const Axes& axes = {}, bool keepdim = false);
Tensor mean(In x, const Axes& axes = {}, bool keepdim = false);  // NaN of no elements; Error for int32 and bool8

// Options of variance() and stddev(). The sum of squared deviations is divided by n - correction, or by 0 if that is
// negative (as torch.var): 1 gives the unbiased estimate, 0 the mean square.
struct VarianceOptions {
  double correction = 1;  // subtracted from n
  bool keepdim = false;   // true: reduced axes remain, with size 1
};
Tensor variance(In x, const Axes& axes = {}, VarianceOptions options = {});
// The square root of the variance (torch.std). Where it is 0, the gradient is taken as 0. Both functions correct for
// the rounding of the mean, so they are exact however far x is from 0. Where squares overflow or underflow, x is scaled
// first.
Tensor stddev(In x, const Axes& axes = {}, VarianceOptions options = {});

// log(sum(e^x)), with the maximum subtracted first. It is -inf of no elements and where all elements are -inf (the
// gradient is 0 there). It is +inf where an element is +inf (the gradient is NaN there, as in PyTorch).
Tensor logsumexp(In x, const Axes& axes = {}, bool keepdim = false);

// (sum |x|^p)^(1/p) for p > 0; the largest |x| for infinite p; 0 of no elements. Where powers overflow or underflow, x
// is scaled first, so the norm is right whenever it fits its type. Where the norm is 0, the gradient is taken as 0. For
// infinite p, all largest |x| share the gradient. Throws Error unless p > 0.
// Write norm(x, {-1}, {.p = 1}): a number alone, which is p in PyTorch and an axis in the ops above, does not compile.
struct NormOptions {
  double p = 2;          // above 0; may be infinite
  bool keepdim = false;  // true: reduced axes remain, with size 1
};
Tensor norm(In x, const Axes& axes = {}, NormOptions options = {});
template <class Number, class... Rest>
requires std::is_arithmetic_v<Number> Tensor norm(In x, Number, Rest&&...)
= delete;

// ---- Extremes ----

// The largest and the smallest elements, and their positions. Where several axes may be given, none means all.

// The largest (smallest) value; NaN if an element is NaN. Takes floating types and int32 and returns the same type
// (masks have any() and all()). Equal extreme elements share the gradient evenly, as in PyTorch's amax(), amin() and
// max() of all elements (its max(dim) passes it to one element). If the value is NaN, the NaN elements share the
// gradient. int32 has no gradient. Throws Error if there are no elements. max(x, 0.0) does not compile: maximum(x, 0.0)
// is the greater of each element and a number.
Tensor max(In x, const Axes& axes = {}, bool keepdim = false);
Tensor min(In x, const Axes& axes = {}, bool keepdim = false);

// The position of the first largest (smallest) element along the axis, or in the flattened tensor if no axis is given,
// as int32. A NaN counts as largest and as smallest. Types and errors as for max() and min().
Tensor argmax(In x, std::optional<Exactly<int>> axis = {}, bool keepdim = false);
Tensor argmin(In x, std::optional<Exactly<int>> axis = {}, bool keepdim = false);

// Whether any element, or every element, of a bool8 mask is true. any() of no elements is false, and all() is true.
Tensor any(In mask, const Axes& axes = {}, bool keepdim = false);
Tensor all(In mask, const Axes& axes = {}, bool keepdim = false);

// The k largest (or smallest) values along the axis, in descending (ascending) order, and their int32 positions along
// the axis. Both results have size k there. Equal values are ordered by position. NaN counts as largest, as in PyTorch.
// The gradient of a value flows to its element. Takes floating types. Throws Error unless 0 <= k <= the size of the
// axis.
struct TopK {
  Tensor values = {}, indices = {};  // of the dtype of x; int32
};
TopK top_k(In x, Exactly<Index> k, Exactly<int> axis = -1, bool largest = true);

// ---- Running sums, products ----

// Running sums, and products. Floating values are accumulated in float64, in the order of the elements, and rounded
// once. A scalar counts as a vector of one element.

// y[i] = x[0] + ... + x[i] along the axis. Takes floating types, int32 and bool8. For int32 and bool8 the sums are
// int32 (int64 in PyTorch), exact, and constants for autodiff. Throws Error if a sum does not fit int32.
Tensor cumsum(In x, Exactly<int> axis);

// The product over the axes (none: all); 1 of no elements. Takes floating types. The derivative does not divide, so it
// is exact where elements are 0.
Tensor prod(In x, const Axes& axes = {}, bool keepdim = false);

}  // namespace heed

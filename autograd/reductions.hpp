// Reductions over any axes: none given means all. The reduced axes are dropped, or kept with size 1 by `keepdim`. All
// take floating types, and give what they are given (of bfloat16, computed in float32 and rounded once); sum() takes
// int32 and bool8 too. The same bits at any number
// of threads. Sums are trees: in float32 the error of a sum of n values is at most about (25 + log2(n)) half units in
// the last place of the sum of their absolute values (measured: tests/core/reduce_test.cpp). Errors: other dtypes, axes
// out of range or named twice.
#pragma once
#include <heed/autograd/record.hpp>
#include <heed/core/axes.hpp>

namespace heed {

// 0 of no elements. Of int32, and of bool8, where it counts what is true, the sum is int32, exact and a constant for
// autodiff (in PyTorch it is int64); Error where int32 does not hold it.
Tensor sum(In x, const Axes& axes = {}, bool keepdim = false);
Tensor mean(In x, const Axes& axes = {}, bool keepdim = false);  // NaN of no elements; Error for int32 and bool8

// The sum of squared deviations is divided by n - correction, or by 0 where that is less (torch.var's): 1 is the unbiased
// estimate, 0 the mean square.
struct VarianceOptions {
  double correction = 1;
  bool keepdim = false;
};
Tensor variance(In x, const Axes& axes = {}, VarianceOptions options = {});
// Its square root (torch.std). Where it is 0 the gradient is taken as 0. In both the rounding of the mean is made good, so
// that they are exact however far x is from 0; squares that overflow or underflow are taken of scaled x.
Tensor stddev(In x, const Axes& axes = {}, VarianceOptions options = {});

// log(sum(e^x)), with the greatest x subtracted first. -inf of no elements and where all are -inf (the gradient is 0
// there); +inf where an element is +inf (its gradient is NaN, as in PyTorch).
Tensor logsumexp(In x, const Axes& axes = {}, bool keepdim = false);

// (sum |x|^p)^(1/p) for p > 0; the greatest |x| where p is infinite. 0 of no elements. Powers that overflow or
// underflow are taken of scaled x, so that the norm is right where it fits its type. Where the norm is 0 the gradient is
// taken as 0; that of p = inf is shared by all greatest |x|. norm(x, {-1}, {.p = 1}): a number alone, which is p in
// PyTorch and an axis in the ops above, does not compile.
struct NormOptions {
  double p = 2;
  bool keepdim = false;
};
Tensor norm(In x, const Axes& axes = {}, NormOptions options = {});
template <class Number, class... Rest>
  requires std::is_arithmetic_v<Number>
Tensor norm(In x, Number, Rest&&...) = delete;

}  // namespace heed

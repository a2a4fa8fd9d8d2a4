// Reductions of float32 and float64 tensors over any axes: none given means all. The reduced axes are dropped, or kept
// with size 1 by `keepdim`. The same bits at any number of threads. Sums are trees: in float32 the error of a sum of n
// values is at most about (25 + log2(n)) half units in the last place of the sum of their absolute values (measured:
// tests/core/reduce_test.cpp). Errors: other dtypes, axes out of range or named twice.
#pragma once
#include <heed/autograd/record.hpp>
#include <heed/core/reduce.hpp>

namespace heed {

Tensor sum(In x, const Axes& axes = {}, bool keepdim = false);   // 0 of no elements
Tensor mean(In x, const Axes& axes = {}, bool keepdim = false);  // NaN of no elements

}  // namespace heed

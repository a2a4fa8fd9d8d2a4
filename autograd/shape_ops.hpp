// Ops that put tensors together, take them apart or move their elements, of every dtype. Views (slice, transpose, ...)
// are members of Tensor.
#pragma once
#include <heed/autograd/record.hpp>
#include <heed/core/axes.hpp>
#include <span>

namespace heed {

// The tensors one after the other along the axis: [2, 3] and [2, 5] give [2, 8]. At least one; of one dtype and of the
// same shape but for the axis. `where` is the caller's line.
Tensor concatenate(std::span<const Tensor> parts, int axis = 0, Where where = Where::current());
Tensor concatenate(std::initializer_list<Tensor> parts, int axis = 0, Where where = Where::current());

// The tensors, all of one shape and dtype, along a new axis: three of [2, 5] give [3, 2, 5], or [2, 3, 5] with axis 1.
Tensor stack(std::span<const Tensor> parts, int axis = 0, Where where = Where::current());
Tensor stack(std::initializer_list<Tensor> parts, int axis = 0, Where where = Where::current());

// Views of x along the axis, each of `size` but the last, which has what is left; or of the sizes given, which add up
// to x's.
std::vector<Tensor> split(In x, Index size, int axis = 0);
std::vector<Tensor> split(In x, std::span<const Index> sizes, int axis = 0);
inline std::vector<Tensor> split(In x, std::initializer_list<Index> sizes, int axis = 0) {
  return split(x, std::span(sizes.begin(), sizes.size()), axis);
}

// x with 0 above (below) the diagonal of the last two axes; diagonal 1 is the one above the main one, -1 the one below.
// tril(Tensor::ones({t, t}, DType::bool8)) is a causal mask.
Tensor tril(In x, Index diagonal = 0);
Tensor triu(In x, Index diagonal = 0);

// x as often as said along each axis: repeat(x, {2, 3}) of [4, 5] is [8, 15] (torch's repeat and tile). More counts
// than axes make leading axes.
Tensor repeat(In x, const Shape& counts);

// x with the order along the axes reversed; at least one axis.
Tensor flip(In x, const Axes& axes);

}  // namespace heed

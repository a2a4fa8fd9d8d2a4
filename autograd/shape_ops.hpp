// Ops that put tensors together, take them apart or move their elements, of every dtype. Views (slice, transpose, ...)
// are members of Tensor.
#pragma once
#include <heed/autograd/record.hpp>
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
std::vector<Tensor> split(In x, std::initializer_list<Index> sizes, int axis = 0);

}  // namespace heed

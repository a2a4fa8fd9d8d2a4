// Ops that join, split or move tensors, and ops that read and write at positions given by indices.
//
// Example:
//
//   const Tensor x = Tensor::arange(6, DType::float32).reshape({2, 3});
//   const Tensor twice = concatenate({x, x}, 1);                                  // [2, 6]
//   const Tensor picked = index_select(x, 0, Tensor::from<std::int32_t>({1, 1}));  // the second row, twice
#pragma once
#include <heed/autograd/record.hpp>
#include <heed/core/tensor.hpp>
#include <span>

namespace heed {

// ---- Join, split, move ----

// Ops that join or split tensors or move their elements, for every dtype. Views (slice, transpose, ...) are members of
// Tensor.

// The tensors one after the other along the axis: [2, 3] and [2, 5] give [2, 8]. `where` is the caller's line. Throws
// Error unless there is at least one tensor and all have one dtype and the same shape except along the axis.
Tensor concatenate(std::span<const Tensor> parts, Exactly<int> axis = 0, Where where = Where::current());
Tensor concatenate(std::initializer_list<Tensor> parts, Exactly<int> axis = 0, Where where = Where::current());

// The tensors along a new axis: three of [2, 5] give [3, 2, 5], or [2, 3, 5] with axis 1. Throws Error unless there is
// at least one and all have one shape and dtype.
Tensor stack(std::span<const Tensor> parts, Exactly<int> axis = 0, Where where = Where::current());
Tensor stack(std::initializer_list<Tensor> parts, Exactly<int> axis = 0, Where where = Where::current());

// Views of x along the axis, each of `size` except the last, which may be smaller; or of the given sizes. Throws Error
// unless `size` is positive, or the sizes add up to the size of the axis.
std::vector<Tensor> split(In x, Exactly<Index> size, Exactly<int> axis = 0);
std::vector<Tensor> split(In x, std::span<const Index> sizes, Exactly<int> axis = 0);
inline std::vector<Tensor> split(In x, std::initializer_list<Index> sizes, Exactly<int> axis = 0) {
  return split(x, std::span(sizes.begin(), sizes.size()), axis);
}
template <detail::NotWhole Size, class... Rest>
std::vector<Tensor> split(In x, std::initializer_list<Size> sizes, Rest&&...) = delete;

// x with 0 above (tril) or below (triu) a diagonal of the last two axes; diagonal 1 is the one above the main diagonal,
// -1 the one below. tril(Tensor::ones({t, t}, DType::bool8)) is a causal mask.
Tensor tril(In x, Exactly<Index> diagonal = 0);
Tensor triu(In x, Exactly<Index> diagonal = 0);

// x repeated counts[i] times along axis i (torch's repeat and tile): repeat(x, {2, 3}) of [4, 5] is [8, 15]. More
// counts than axes add leading axes.
Tensor repeat(In x, const Shape& counts);

// x in reverse order along the axes. Throws Error if no axis is given.
Tensor flip(In x, const Axes& axes);

// Columns as heads of attention: x [B, T, H * D] -> [B, H, T, D], a view. Throws Error unless heads divide the width.
Tensor split_heads(In x, Exactly<Index> heads);
// The inverse: x [B, H, T, D] -> [B, T, H * D], a view if the heads are side by side in memory.
Tensor merge_heads(In x);

// ---- Indices ----

// Ops that read and write at positions given by int32 indices. Indices are in [-n, n) for an axis of size n; negative
// ones count from the end (torch.gather rejects them). Throws Error for the first wrong index, with its position. Sums
// over equal indices are computed in the order of the indices: the same bits at any number of threads.

// y[i] = x[i with i[axis] replaced by index[i]], of index's shape (torch.gather). index has x's rank, and is nowhere
// larger than x except along the axis. Takes every dtype. The gradient is scattered back.
Tensor gather(In x, Exactly<int> axis, In index);

// x plus source[i] at [i with i[axis] replaced by index[i]] (torch.scatter_add). source has index's shape, which fits x
// as in gather(). float32 or float64.
Tensor scatter_add(In x, Exactly<int> axis, In index, In source);

// The slices index[0], index[1], ... of x along the axis; index has one axis (torch.index_select).
Tensor index_select(In x, Exactly<int> axis, In index);

// 1 where the position along a new last axis of size `classes` equals the index, else 0: [2, 3] gives [2, 3, classes].
// The dtype is float32 by default (int64 in PyTorch). Throws Error for an index outside of [0, classes).
Tensor one_hot(In index, Exactly<Index> classes, DType dtype = DType::float32);

}  // namespace heed

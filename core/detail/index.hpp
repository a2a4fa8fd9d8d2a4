// Sizes and places that are computed from what a user gives, and reading and writing at places along an axis; without
// autodiff.
#pragma once
#include <heed/core/tensor.hpp>

namespace heed::detail {

// Whether the product of the sizes, those of 0 left out, is at most 2^60: the bytes of any dtype can be counted then,
// and strides, offsets and the elements along any of the axes.
bool can_be_counted(const Shape& shape);

// Throws Error unless the indices are int32, of any strides, and each lies in [least, limit) or is `ignored`. It names
// the first that does not, with its position: «gather: index[0, 3] is 7; it must be in [0, 5)».
inline constexpr Index kNoneIgnored = Index{1} << 40;
void check_indices(const char* op, const char* name, const Where& where, const Tensor& indices, Index limit,
                   Index ignored = kNoneIgnored, Index least = 0);

// Indices that may count from the end: contiguous, with those of [-limit, 0) made those of [0, limit). Throws Error
// as check_indices does.
Tensor indices_from_0(const char* op, const Where& where, const Tensor& indices, Index limit);

// y[i] = x[i with i[axis] replaced by index[i]]; y is contiguous and has index's shape, x any strides and y's dtype.
void gather(const Tensor& x, int axis, const Tensor& index, Tensor& y);
// to[i with i[axis] replaced by index[i]] += from[i]; of equal indices along the axis the first is added first. `from`
// is contiguous, has index's shape and the dtype of `to`, which is float32 or float64.
void scatter_add(Tensor& to, int axis, const Tensor& index, const Tensor& from);

// y[..., j, ...] = x[..., index[j], ...] along the axis, and to[..., index[j], ...] += from[..., j, ...]; all are
// contiguous.
void index_select(const Tensor& x, int axis, const Tensor& index, Tensor& y);
void index_add(Tensor& to, int axis, const Tensor& index, const Tensor& from);

}  // namespace heed::detail

// Checks of sizes and indices that a user gives, and reading and writing at indices along an axis, without autodiff.
#pragma once
#include <heed/core/tensor.hpp>

namespace heed::detail {

// Whether the product of all sizes except zeros is at most 2^60. Then Index can hold the number of bytes in any dtype,
// all strides and offsets, and the number of elements along any of the axes.
bool can_be_counted(const Shape& shape);

// Throws Error unless the indices are int32, of any strides, and each is in [least, limit) or equal to `ignored`. The
// message shows the first wrong index and its position: «gather: index[0, 3] is 7; it must be in [0, 5)».
inline constexpr Index kNoneIgnored = Index{1} << 40;
void check_indices(const char* op, const char* name, const Where& where, const Tensor& indices, Index limit,
                   Index ignored = kNoneIgnored, Index min = 0);

// Resolves indices that count from the end: adds `limit` to those in [-limit, 0). The result is contiguous. Throws
// Error as check_indices() does if an index is not in [-limit, limit).
Tensor indices_from_0(const char* op, const Where& where, const Tensor& indices, Index limit);

// y[i] = x[i with i[axis] replaced by index[i]]. index and y are contiguous and of one shape. x may have any strides,
// and has y's dtype.
void gather(const Tensor& x, int axis, const Tensor& index, Tensor& y);
// to[i with i[axis] replaced by index[i]] += from[i]. Values with equal indices along the axis are added in order.
// index and `from` are contiguous and of one shape. `from` has the dtype of `to`, float32 or float64.
void scatter_add(Tensor& to, int axis, const Tensor& index, const Tensor& from);

// Along the axis, y[..., j, ...] = x[..., index[j], ...], and to[..., index[j], ...] += from[..., j, ...]. All tensors
// are contiguous.
void index_select(const Tensor& x, int axis, const Tensor& index, Tensor& y);
void index_add(Tensor& to, int axis, const Tensor& index, const Tensor& from);

}  // namespace heed::detail

// Checks of int32 tensors that name rows or classes.
#pragma once
#include <heed/core/tensor.hpp>

namespace heed::detail {

// Throws Error that names the first of the (contiguous, int32) indices outside [0, n), with its position; `ignored`, if
// it is a value of int32, is allowed as well.
inline constexpr Index kNoneIgnored = Index{1} << 40;
void check_indices(const char* op, const char* name, const Where& where, const Tensor& indices, Index n,
                   Index ignored = kNoneIgnored);

}  // namespace heed::detail

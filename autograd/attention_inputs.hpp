// What the attention ops ask of their tensors.
#pragma once
#include <heed/core/parameter.hpp>

namespace heed::detail {

// q [B, H, T, D], k [B, Hk, S, D] and v [B, Hk, S, Dv] of float32 or of float64, Hk a divisor of H, D not 0; else an
// Error that begins with `op`.
void check_heads(const char* op, In q, In k, In v);

// key_lengths int32 [B], each from 0 to S, and key_mask bool8 [B, S], where they are defined, for k [B, Hk, S, D].
void check_key_masks(const char* op, In k, const Tensor& key_lengths, const Tensor& key_mask);

// x, copied where its last axis has gaps.
Tensor unit_rows(const Tensor& x);

// [B, T, H * Dv] seen as [B, H, T, Dv] where it is `merged`; else y itself.
Tensor heads_of(const Tensor& y, bool merged, Index heads);

// k [B, Hk, S, D] with zeros for the keys that key_lengths and key_mask (checked; either may be undefined) leave out:
// what padding holds, NaN included, must not reach the gradient of what is computed from keys before the attention. k
// itself where there is neither.
Tensor without_padding(In k, const Tensor& key_lengths, const Tensor& key_mask);

}  // namespace heed::detail

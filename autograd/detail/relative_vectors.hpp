// Sums and copies by distance, for attention with a vector per distance between query and key.
#pragma once
#include <heed/core/tensor.hpp>
#include <vector>

namespace heed::detail {

// Distances of keys to the queries of a block. Query i of row b is at position first[b] + i. The distance of key j is
// d = clamp(j - position, -clip, clip) + clip, from 0 to 2 clip.
struct Distances {
  std::vector<Index> first;  // [B]
  Index keys = 0, clip = 0;
};

// x [B, H, T, 2 clip + 1] -> y [B, H, T, keys], y_ij = x_id.
Tensor spread_by_distance(const Tensor& x, const Distances& at);
// The adjoint: w [B, H, T, keys] -> y [B, H, T, 2 clip + 1], y_id = the sum of w_ij over the keys at this distance, in
// float64, rounded once.
Tensor sum_by_distance(const Tensor& w, const Distances& at);

}  // namespace heed::detail

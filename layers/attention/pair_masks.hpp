// Which pairs a call allows, for mechanisms that choose their keys themselves.
#pragma once
#include <algorithm>
#include <heed/core/tensor.hpp>
#include <heed/layers/attention/mechanism.hpp>

namespace heed::detail {

// causal, key_lengths, key_mask and mask of a call in one. The call was checked.
class PairMasks {
 public:
  PairMasks(const AttentionCall& call, const Shape& grid)  // [B, H, T, S]
      : queries_(grid[2]),
        keys_(grid[3]),
        causal_(call.causal),
        lengths_(call.key_lengths.defined() ? call.key_lengths.dense() : Tensor()),
        alive_(call.key_mask.defined() ? call.key_mask.dense() : Tensor()),
        mask_(call.mask.defined() ? call.mask.expand(grid) : Tensor()) {}

  // Keys from here on are padding.
  Index length(Index b) const { return lengths_.defined() ? lengths_.ptr<std::int32_t>()[b] : keys_; }
  // Keys that query i sees end here: lengths and the triangle.
  Index end(Index b, Index i) const {
    return causal_ ? std::clamp<Index>(i + keys_ - queries_ + 1, 0, length(b)) : length(b);
  }
  bool alive(Index b, Index j) const {
    return j < length(b) && (!alive_.defined() || alive_.ptr<bool>()[b * keys_ + j]);
  }
  // For j < end(b, i).
  bool allows(Index b, Index h, Index i, Index j) const {
    if (alive_.defined() && !alive_.ptr<bool>()[b * keys_ + j]) return false;
    if (!mask_.defined()) return true;
    const Strides& s = mask_.strides();
    return mask_.ptr<bool>()[b * s[0] + h * s[1] + i * s[2] + j * s[3]];
  }

 private:
  Index queries_, keys_;
  bool causal_;
  Tensor lengths_, alive_, mask_;
};

}  // namespace heed::detail

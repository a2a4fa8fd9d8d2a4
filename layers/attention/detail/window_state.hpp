// The decode state of window attention: the last keys and values, and the keys and values of global positions.
#pragma once
#include <heed/layers/attention/sparse.hpp>
#include <heed/layers/attention/states.hpp>

namespace heed {

// Stores the global positions below `start`, and all positions from `start` on. Positions that no later query sees are
// dropped from time to time, so time per token and memory are O(window * dilation + globals) for any length. Until the
// last global position has been a query, all positions are kept, because that query sees them. All rows have the same
// `start`, which the shortest row determines.
class WindowState {
 public:
  explicit WindowState(const WindowAttention& mechanism) : mechanism_(mechanism) {}
  // Appends k [B, Hk, T, D] and v [B, Hk, T, Dv], and attends: [B, H, T, Dv]. No gradient.
  Tensor apply(In q, In k, In v, const AttentionCall& call = {});
  const Tensor& lengths() const { return lengths_; }
  void members(auto&& visit) {
    visit.buffer("lengths", lengths_);
    visit.shared("start", start_);
    visit.buffer("keys", keys_);
    visit.buffer("values", values_);
  }

 private:
  WindowAttention mechanism_;
  Tensor keys_, values_;  // [B, Hk, capacity, D], [B, Hk, capacity, Dv]
  Tensor lengths_ = Tensor::zeros({0}, DType::int32), start_ = Tensor::zeros({}, DType::int32);

  Index start() const { return static_cast<Index>(start_.item()); }
  Index globals_before(Index position) const;
  // The index of a position >= start among the stored positions, which is also the number of stored positions before
  // it.
  Index held(Index start, Index position) const { return globals_before(start) + position - start; }
  Index first_needed(Index length) const;
  KeyLists lists(Index heads, Index count, bool ragged) const;
  Tensor bias_of_held(const Tensor& bias, Index length) const;
  void make_room(In k, In v, Index capacity);
};

}  // namespace heed

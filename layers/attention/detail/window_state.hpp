// The decode state of window attention: the last keys and values, and those of global positions.
#pragma once
#include <heed/layers/attention/sparse.hpp>
#include <heed/layers/attention/states.hpp>

namespace heed {

// Holds the global positions below `start` and all from `start` on. What no later query sees is dropped from time to
// time, so that a token costs O(window * dilation + globals) however many came before, and so does the memory. Up to
// the last global position everything is kept, since the query there sees it. `start` is the same for all rows: that of
// the shortest.
class WindowState {
 public:
  explicit WindowState(const WindowAttention& mechanism) : mechanism_(mechanism) {}
  // Appends k [B, Hk, T, D] and v [B, Hk, T, Dv], and attends: [B, H, T, Dv]. No gradient.
  Tensor apply(In q, In k, In v, const AttentionCall& call = {});
  const Tensor& lengths() const { return lengths_; }
  WindowState rows(const Tensor& indices) const;
  void members(auto&& visit) {
    visit.buffer("lengths", lengths_);
    visit.buffer("start", start_);
    visit.buffer("keys", keys_);
    visit.buffer("values", values_);
  }

 private:
  WindowAttention mechanism_;
  Tensor keys_, values_;  // [B, Hk, capacity, D], [B, Hk, capacity, Dv]
  Tensor lengths_ = Tensor::zeros({0}, DType::int32), start_ = Tensor::zeros({}, DType::int32);

  Index start() const { return static_cast<Index>(start_.item()); }
  Index globals_before(Index position) const;
  // The place of a position among what is held from `start` on, and so how many are held up to it.
  Index held(Index start, Index position) const { return globals_before(start) + position - start; }
  Index first_needed(Index length) const;
  KeyLists lists(Index heads, Index count, bool ragged) const;
  Tensor bias_of_held(const Tensor& bias, Index length) const;
  void make_room(In k, In v, Index capacity);
};

}  // namespace heed

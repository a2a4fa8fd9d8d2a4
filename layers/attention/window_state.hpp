// The decode state of window attention: the last keys and values, and those of global positions.
#pragma once
#include <heed/layers/attention/sparse.hpp>

namespace heed {

// Holds the global positions below `start` and all from `start` on. What no later query sees is dropped from time to
// time, so that a token costs O(window * dilation + globals) however many came before, and so does the memory. Up to
// the last global position everything is kept, since the query there sees it.
class WindowState {
 public:
  explicit WindowState(const WindowAttention& mechanism) : mechanism_(mechanism) {}
  // Appends k [B, Hk, T, D] and v [B, Hk, T, Dv], and attends: [B, H, T, Dv]. No gradient.
  Tensor apply(In q, In k, In v, const Tensor& bias = {});
  Index length() const { return static_cast<Index>(length_.item()); }
  void members(auto&& visit) {
    visit.buffer("length", length_);
    visit.buffer("start", start_);
    visit.buffer("keys", keys_);
    visit.buffer("values", values_);
  }

 private:
  WindowAttention mechanism_;
  Tensor keys_, values_;  // [B, Hk, capacity, D], [B, Hk, capacity, Dv]
  Tensor length_ = Tensor::zeros({}, DType::int32), start_ = Tensor::zeros({}, DType::int32);

  Index start() const { return static_cast<Index>(start_.item()); }
  Index globals_before(Index position) const;
  Index held(Index start, Index length) const { return globals_before(start) + length - start; }
  Index first_needed(Index length) const;
  KeyLists lists(Index before, Index length) const;
  Tensor bias_of_held(const Tensor& bias, Index length) const;
  void make_room(In k, In v, Index length, Index capacity);
};

}  // namespace heed

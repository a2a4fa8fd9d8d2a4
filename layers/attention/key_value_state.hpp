// The decode state of mechanisms that need all keys: it keeps keys and values, and attends to them anew.
#pragma once
#include <functional>
#include <heed/layers/attention/mechanism.hpp>

namespace heed {

// Room doubles as positions come, so that one more costs no copy of the others.
class KeyValueState {
 public:
  // Attends causally: q [B, H, T, D], the last T positions, to all keys and values so far.
  using Attend = std::function<Tensor(In q, In k, In v)>;

  explicit KeyValueState(Attend attend) : attend_(std::move(attend)) {}
  // Appends k [B, Hk, T, D] and v [B, Hk, T, Dv], and attends: [B, H, T, Dv]. No gradient.
  Tensor apply(In q, In k, In v);
  Index length() const { return static_cast<Index>(length_.item()); }
  void members(auto&& visit) {
    visit.buffer("length", length_);
    visit.buffer("keys", keys_);
    visit.buffer("values", values_);
  }

 private:
  Attend attend_;
  Tensor keys_, values_;  // [B, Hk, capacity, D], [B, Hk, capacity, Dv]
  Tensor length_ = Tensor::zeros({}, DType::int32);
};

}  // namespace heed

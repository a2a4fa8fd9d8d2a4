// The decode state of mechanisms that need all keys: it keeps keys and values, and attends to them anew.
#pragma once
#include <functional>
#include <heed/layers/attention/mechanism.hpp>

namespace heed {

// Room doubles as positions come, so that one more costs no copy of the others.
class KeyValueState {
 public:
  // Attends causally: q [B, H, T, D], the last T positions, to all S keys and values so far. The bias may be undefined,
  // and else broadcasts to [B, H, T, S].
  using Attend = std::function<Tensor(In q, In k, In v)>;
  using AttendWithBias = std::function<Tensor(In q, In k, In v, const Tensor& bias)>;

  // attend(q, k, v, bias), or attend(q, k, v), which takes no bias.
  template <class F>
  explicit KeyValueState(F attend) {
    if constexpr (std::is_invocable_v<F&, In, In, In, const Tensor&>)
      attend_ = std::move(attend);
    else
      attend_ = [attend = std::move(attend)](In q, In k, In v, const Tensor& bias) {
        check(!bias.defined(), q.where(), "KeyValueState: bias is ", bias,
              ", but what attends to the cache takes none; it must be undefined");
        return attend(q, k, v);
      };
  }
  // Appends k [B, Hk, T, D] and v [B, Hk, T, Dv], and attends: [B, H, T, Dv]. No gradient.
  Tensor apply(In q, In k, In v, const Tensor& bias = {});
  Index length() const { return static_cast<Index>(length_.item()); }
  void members(auto&& visit) {
    visit.buffer("length", length_);
    visit.buffer("keys", keys_);
    visit.buffer("values", values_);
  }

 private:
  AttendWithBias attend_;
  Tensor keys_, values_;  // [B, Hk, capacity, D], [B, Hk, capacity, Dv]
  Tensor length_ = Tensor::zeros({}, DType::int32);
};

}  // namespace heed

// The decode state of mechanisms that need all keys: it keeps keys and values, and attends to them anew.
//
//   AttentionState make_state() const {
//     return KeyValueState([self = *this](In q, In k, In v, const AttentionCall& call) { return self.apply(q, k, v, call); });
//   }
#pragma once
#include <functional>
#include <heed/layers/attention/states/attention_state.hpp>

namespace heed {

// Room doubles as positions come, so that one more costs no copy of the others.
class KeyValueState {
 public:
  // Attends to all S keys and values so far, position j of each row at j: q [B, H, T, D], k [B, Hk, S, D], v
  // [B, Hk, S, Dv] -> [B, H, T, Dv]. The call is causal and has a bias, where one was given, [.., T, S]. It has
  // key_lengths where not every row has S positions: then T is 1, and the query is a row's last position, or all rows had
  // seen as many before the T positions.
  using Attend = std::function<Tensor(In q, In k, In v, const AttentionCall& call)>;

  explicit KeyValueState(Attend attend) : attend_(std::move(attend)) {}
  // Appends k and v, and attends, by the state's own function or another: as AttentionState::apply(). No gradient.
  Tensor apply(In q, In k, In v, const AttentionCall& call = {}) { return apply(q, k, v, call, attend_); }
  Tensor apply(In q, In k, In v, const AttentionCall& call, const Attend& attend);
  const Tensor& lengths() const { return lengths_; }
  void members(auto&& visit) {
    visit.buffer("lengths", lengths_);
    visit.buffer("keys", keys_);
    visit.buffer("values", values_);
  }

 private:
  Attend attend_;
  Tensor keys_, values_;  // [B, Hk, capacity, D], [B, Hk, capacity, Dv]
  Tensor lengths_ = Tensor::zeros({0}, DType::int32);
};

// A KeyValueState that maps queries and keys as they come, so that it keeps mapped keys.
class MappedKeyState {
 public:
  using Map = std::function<Tensor(In x)>;  // [B, H, T, D] -> [B, H, T, A]; of keys also [B, Hk, T, D] -> [B, H, T, A]

  MappedKeyState(Map query, Map key, KeyValueState::Attend attend)
      : query_(std::move(query)), key_(std::move(key)), mapped_(std::move(attend)) {}
  Tensor apply(In q, In k, In v, const AttentionCall& call = {});
  const Tensor& lengths() const { return mapped_.lengths(); }
  void members(auto&& visit) { mapped_.members(visit); }

 private:
  Map query_, key_;
  KeyValueState mapped_;
};

}  // namespace heed

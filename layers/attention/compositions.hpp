// What mechanisms share that are compositions of ops around a fused attention: projections of their own for each head,
// and a decode state whose keys are projected once.
#pragma once
#include <functional>
#include <heed/core/random.hpp>
#include <heed/layers/attention/key_value_state.hpp>

namespace heed::detail {

// Uniform in +-1 / sqrt(fan_in), as the weights and biases of Linear.
Parameter uniform_parameter(const Shape& shape, Index fan_in, Rng& rng);

// x [B, H, T, D] by a matrix W [H, A, D] for each head: [B, H, T, A]. Errors begin with `name`.
Tensor project_heads(const char* name, In x, In W);
// The same of keys, of which query heads share some: k [B, Hk, S, D], where Hk divides H, to [B, H, S, A].
Tensor project_keys(const char* name, In k, In W);
// x [B, Hk, S, D] with each head as often as query heads share it: [B, H, S, D]. x itself where Hk is H.
Tensor repeat_heads(In x, Index heads);

}  // namespace heed::detail

namespace heed {

// A KeyValueState that maps queries and keys as they come, so that it keeps mapped keys.
class MappedKeyState {
 public:
  using Map = std::function<Tensor(In x)>;  // [B, H, T, D] -> [B, H, T, A]; of keys also [B, Hk, T, D] -> [B, H, T, A]

  MappedKeyState(Map query, Map key, KeyValueState::AttendWithBias attend)
      : query_(std::move(query)), key_(std::move(key)), mapped_(std::move(attend)) {}
  Tensor apply(In q, In k, In v, const Tensor& bias = {}) {
    const NoTape guard;  // decoding is not trained through
    const Tensor keys = key_(k), values = detail::repeat_heads(v, keys.dim(1));
    return mapped_.apply({query_(q), q.where()}, {keys, k.where()}, {values, v.where()}, bias);
  }
  Index length() const { return mapped_.length(); }
  void members(auto&& visit) { mapped_.members(visit); }

 private:
  Map query_, key_;
  KeyValueState mapped_;
};

}  // namespace heed

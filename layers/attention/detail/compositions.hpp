// What mechanisms share that are compositions of ops around a fused attention: projections of their own for each
// head, and additive scores.
#pragma once
#include <heed/core/members.hpp>
#include <heed/core/random.hpp>
#include <heed/layers/attention/states.hpp>

namespace heed::detail {

// Uniform in +-1 / sqrt(fan_in), as the weights and biases of Linear.
Parameter uniform_parameter(const Shape& shape, Index fan_in, Rng& rng);

// x [B, H, T, D] by a matrix W [H, A, D] for each head: [B, H, T, A]. Errors begin with `name`.
Tensor project_heads(const char* name, In x, In W);
// The same of keys, of which query heads share some: k [B, Hk, S, D], where Hk divides H, to [B, H, S, A].
Tensor project_keys(const char* name, In k, In W);
// x [B, Hk, S, D] with each head as often as query heads share it: [B, H, S, D]. x itself where Hk is H.
Tensor repeat_heads(In x, Index heads);

// s_ij = u . tanh(W q_i + U k_j + bias) with u = score, or normalised by a gain: what Bahdanau's attention and Luong's
// concat share. Heads that share keys project them each by its own U.
struct Additive {
  Tensor W, U;   // [H, A, D]
  Tensor score;  // [H, A]
  Tensor gain;   // [H], or undefined
  Tensor bias;   // [H, A], or undefined

  Tensor apply(In q, In k, In v, const AttentionCall& call) const {
    return apply_mapped(q, map_keys(k, call), v, call);
  }
  Tensor map_keys(In k, const AttentionCall& call) const;  // U k, of all heads
  Tensor apply_mapped(In q, In keys, In v, const AttentionCall& call) const;
  AttentionState make_state() const;  // keeps the mapped keys
};

}  // namespace heed::detail

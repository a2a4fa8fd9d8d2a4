// Parts of mechanisms that are composed of ops around a fused attention: projections per head, and additive scores.
#pragma once
#include <heed/core/members.hpp>
#include <heed/core/random.hpp>
#include <heed/layers/attention/states.hpp>

namespace heed::detail {

// Uniform in +-1 / sqrt(fan_in), like the weights and biases of Linear.
Parameter uniform_parameter(const Shape& shape, Index fan_in, Rng& rng);

// Multiplies x [B, H, T, D] by one matrix of W [H, A, D] per head: [B, H, T, A]. Throws Error that begins with `name`.
Tensor project_heads(const char* name, In x, In W);
// The same for keys that query heads share: k [B, Hk, S, D], where Hk divides H, -> [B, H, S, A].
Tensor project_keys(const char* name, In k, In W);
// Repeats each head of x [B, Hk, S, D] for the query heads that share it: [B, H, S, D]. Returns x itself if Hk = H.
Tensor repeat_heads(In x, Index heads);

// Scores s_ij = u . tanh(W q_i + U k_j + bias), for Bahdanau's attention and Luong's concat. u is score, or gain *
// score / |score| with a gain. Query heads that share keys each project them by their own U.
struct Additive {
  Tensor W, U;   // [H, A, D]
  Tensor score;  // [H, A]
  Tensor gain;   // [H], or undefined
  Tensor bias;   // [H, A], or undefined

  Tensor map_keys(In k, const AttentionCall& call) const;  // U k, [B, H, S, A]
  Tensor apply_mapped(In q, In keys, In v, const AttentionCall& call) const;
};

}  // namespace heed::detail

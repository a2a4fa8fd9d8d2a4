// Local attention of a decoder (Luong, Pham, Manning, "Effective approaches to attention-based neural machine
// translation", 2015, section 3.2): softmax inside a window around an aligned position p of a sentence of S keys, for
// each head.
//
//   local-m:  p = t, the position of the query
//   local-p:  p = S sigmoid(v . tanh(W q))             zero-based, W [A, D], v [A]
//   keys j in [p - D, p + D]: w = softmax_j(s_j) over them, s as in luong.hpp
//     p = 3.5 and D = 1 see 3 and 4. The window of local-m shrinks at the end of the source and is empty behind it
//   local-p:  w_j *= e^(-(j - p)^2 / (2 sigma^2)), sigma = D / 2; they add up to less than 1, unless `renormalise`
//
//   dp = sum_j w_j (dw_j - [renormalise] sum_k w_k dw_k) (j - p) / sigma^2       (w as it is at last)
//
// The window is constant in the gradient. p is computed in float64 for both dtypes, since a
// window that jumps with its last bit would make float32 another model.
//
// The 2 D + 1 keys and values of each query (S where that is less) are gathered: time and memory O(S + T D) rows, never
// T x S, but for a mask or a bias of that size that is given. The sums of concat, A numbers per pair, are not held: O(S).
#pragma once
#include <algorithm>
#include <heed/core/random.hpp>
#include <heed/layers/attention/mechanism.hpp>

namespace heed {

enum class LuongScore { dot, general, concat };
enum class LuongAlignment { monotonic, predictive };  // local-m, local-p

struct LuongLocalOptions {
  LuongScore score = LuongScore::dot;
  LuongAlignment alignment = LuongAlignment::monotonic;
  Index radius = 10;         // D
  bool renormalise = false;  // local-p: the weights add up to 1 after the Gaussian
  // The window is around the key min(floor(p), S - 1) in place of p: past the end of a source it stays at the last D + 1
  // keys, and p = 3.5 and D = 1 see 2, 3 and 4.
  bool window_around_key = false;
  Index first_query = 0;     // local-m: t of the first query, e.g. the step of a decoder that attends once a step
  Index units = 0;           // A of concat and local-p; 0: the size of a head
};

struct LuongLocalAttention {
  LuongLocalOptions options;    // first_query may be set before each call
  Parameter W, U, bias, score;  // general: W [heads, size, size]; concat: W, U [heads, units, size], the others [heads, units]
  Parameter position_W;         // [heads, units, size], of local-p
  Parameter position_score;     // [heads, units], of local-p

  LuongLocalAttention(Index heads, Index size, Rng& rng, const LuongLocalOptions& options = {});

  std::string name() const;
  AttentionCapabilities capabilities() const;
  double keys_per_query(Index positions, Index) const {
    return static_cast<double>(std::min(positions, 2 * options.radius + 1));
  }
  // The length of a sentence is its key_lengths, else S. key_mask, mask and bias act inside the window. Errors: causal; a
  // radius below 1; a negative first_query; parameters that do not fit.
  Tensor apply(In q, In k, In v, const AttentionCall& call) const;
  Tensor positions(In q, In k, const AttentionCall& call = {}) const;  // p, [B, H, T] float64; 0 of a sentence without keys
  void members(auto&& visit) {
    visit("W", W);
    visit("U", U);
    visit("bias", bias);
    visit("score", score);
    visit("position_W", position_W);
    visit("position_score", position_score);
  }
};

}  // namespace heed

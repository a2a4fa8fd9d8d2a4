// The scores of Luong, Pham and Manning, "Effective approaches to attention-based neural machine translation", 2015,
// equations 7 and 8, as mechanisms. For each head, none of them scaled, and w = softmax_j(s):
//
//   dot:       s_ij = q_i . k_j
//   general:   s_ij = q_i^T W k_j                       W [D, D]
//   concat:    s_ij = v . tanh(W q_i + U k_j + b)       [W U] is the paper's one matrix on [q; k]
//   location:  s_ij = W_j . q_i                         a row for each absolute position of a key
//
// Their derivatives, from ds = w * (dw - sum_j w dw):
//
//   general:   dq_i = W sum_j ds_ij k_j     dk_j = W^T sum_i ds_ij q_i     dW = sum_ij ds_ij q_i k_j^T     (dot: W = 1)
//   concat:    see bahdanau.hpp
//   location:  dq_i = sum_j ds_ij W_j       dW_j = sum_i ds_ij q_i         dk = 0
#pragma once
#include <heed/core/random.hpp>
#include <heed/layers/attention/mechanism.hpp>

namespace heed {

struct LuongDot {
  std::string name() const { return "luong-dot"; }
  AttentionCapabilities capabilities() const;
  Tensor apply(In q, In k, In v, const AttentionCall& call) const;
  AttentionState make_state() const;
  void members(auto&&) {}
};

struct LuongGeneral {
  Parameter W;  // [heads, size, size]

  LuongGeneral(Index heads, Index size, Rng& rng);

  std::string name() const { return "luong-general"; }
  AttentionCapabilities capabilities() const;
  Tensor apply(In q, In k, In v, const AttentionCall& call) const;
  AttentionState make_state() const;
  void members(auto&& visit) { visit("W", W); }
};

struct LuongConcatOptions {
  Index units = 0;  // A; 0: the size of a head
};

struct LuongConcat {
  Parameter W, U;   // [heads, units, size]
  Parameter bias;   // [heads, units]
  Parameter score;  // [heads, units]: v of the formula

  LuongConcat(Index heads, Index size, Rng& rng, const LuongConcatOptions& options = {});

  std::string name() const { return "luong-concat"; }
  AttentionCapabilities capabilities() const;
  Tensor apply(In q, In k, In v, const AttentionCall& call) const;
  AttentionState make_state() const;  // keeps the keys' projections, of all heads
  void members(auto&& visit) {
    visit("W", W);
    visit("U", U);
    visit("bias", bias);
    visit("score", score);
  }
};

struct LuongLocationOptions {
  Index positions = 0;  // the most keys that there may be; must be given
};

struct LuongLocation {
  Parameter W;  // [heads, positions, size]; more keys than positions are an Error

  LuongLocation(Index heads, Index size, Rng& rng, const LuongLocationOptions& options);

  std::string name() const { return "luong-location"; }
  AttentionCapabilities capabilities() const;
  Tensor apply(In q, In k, In v, const AttentionCall& call) const;
  AttentionState make_state() const;
  void members(auto&& visit) { visit("W", W); }
};

}  // namespace heed

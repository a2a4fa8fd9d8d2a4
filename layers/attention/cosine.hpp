// Content-based addressing (Graves, Wayne and Danihelka, "Neural Turing machines", 2014, equations 5 and 6), as a
// mechanism, for each head:
//
//   s_ij = beta q_i / |q_i| . k_j / |k_j|     w = softmax_j(s)     beta = exp(log_beta) > 0
//   ds = w * (dw - sum_j w dw)                dlog_beta = sum_ij ds_ij s_ij
//   d(q / |q|)_i = beta sum_j ds_ij k_j / |k_j|         d(k / |k|)_j = beta sum_i ds_ij q_i / |q_i|
//   dx = (dn - n (n . dn)) / |x|, where n = x / |x|
//
// A query or key of nothing but zeros has a cosine of 0 with all, and no gradient.
#pragma once
#include <heed/core/random.hpp>
#include <heed/layers/attention/mechanism.hpp>

namespace heed {

struct CosineAttention {
  Parameter log_beta;  // [heads], 0 at first: beta starts at 1

  // size and rng are not used: they are what mechanisms with parameters are made from.
  CosineAttention(Index heads, Index size, Rng& rng);

  std::string name() const { return "cosine"; }
  AttentionCapabilities capabilities() const;
  Tensor apply(In q, In k, In v, const AttentionCall& call) const;
  AttentionState make_state() const;  // keeps the keys' directions
  void members(auto&& visit) { visit("log_beta", log_beta); }
};

}  // namespace heed

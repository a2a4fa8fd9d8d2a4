// Additive attention (Bahdanau, Cho and Bengio, "Neural machine translation by jointly learning to align and
// translate", 2015, section A.1.2), as a mechanism, for each head:
//
//   t_ij = tanh(W q_i + U k_j + b)     s_ij = v . t_ij, or normalised g v / |v| . t_ij     w = softmax_j(s)
//   ds = w * (dw - sum_j w dw)         e_ij = ds_ij u * (1 - t_ij^2), where u = v or g v / |v|
//   d(W q_i) = sum_j e_ij              d(U k_j) = sum_i e_ij            db = sum_ij e_ij        du = sum_ij ds_ij t_ij
//   dg = v / |v| . du                  dv = g / |v| (du - v / |v| (v / |v| . du)), or du
//
// Normalised with g and b: Salimans and Kingma, "Weight normalization", 2016; TensorFlow's BahdanauAttention has it so.
// t is of T x S x A numbers, which are never held together: see core/kernels/additive_attention.hpp.
#pragma once
#include <heed/core/random.hpp>
#include <heed/layers/attention/mechanism.hpp>

namespace heed {

struct BahdanauOptions {
  Index units = 0;          // A; 0: the size of a head
  bool normalized = false;  // score is normalised; has a gain and a bias
};

struct BahdanauAttention {
  Parameter W, U;   // [heads, units, size]
  Parameter score;  // [heads, units]: v of the formula
  Parameter gain;   // [heads], 1 / sqrt(units) at first; normalised only
  Parameter bias;   // [heads, units], 0 at first; normalised only

  BahdanauAttention(Index heads, Index size, Rng& rng, const BahdanauOptions& options = {});

  std::string name() const { return "bahdanau"; }
  AttentionCapabilities capabilities() const;
  Tensor apply(In q, In k, In v, const AttentionCall& call) const;
  AttentionState make_state() const;  // keeps the keys' projections, of all heads
  void members(auto&& visit) {
    visit("W", W);
    visit("U", U);
    visit("score", score);
    visit("gain", gain);
    visit("bias", bias);
  }
};

}  // namespace heed

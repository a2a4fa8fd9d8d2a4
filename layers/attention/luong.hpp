// The attention of encoder-decoders: Luong's scores, his local attention, and Bahdanau's additive attention.
//
// Example:
//
//   Rng rng(1);
//   const LuongGeneral general(1, 16, rng);
//   const Tensor queries = rng.normal({2, 1, 3, 16}), memory = rng.normal({2, 1, 7, 16});
//   const Tensor context = general.apply(queries, memory, memory, {.key_lengths = Tensor::from<std::int32_t>({7, 4})});
#pragma once
#include <algorithm>
#include <heed/core/random.hpp>
#include <heed/layers/attention/mechanism.hpp>

namespace heed {

// ---- Scores ----

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
//   concat:    see below, Bahdanau's
//   location:  dq_i = sum_j ds_ij W_j       dW_j = sum_i ds_ij q_i         dk = 0

struct LuongDot {
  std::string name() const { return "luong-dot"; }
  AttentionCapabilities capabilities() const { return AttentionCapabilities::of_pairs(); }
  Tensor apply(In q, In k, In v, const AttentionCall& call) const;
  AttentionState make_state() const;
  void members(auto&&) {}
};

struct LuongGeneral {
  Parameter W;  // [heads, size, size]

  LuongGeneral(Exactly<Index> heads, Exactly<Index> size, Rng& rng);

  std::string name() const { return "luong-general"; }
  AttentionCapabilities capabilities() const { return AttentionCapabilities::of_pairs(); }
  Tensor apply(In q, In k, In v, const AttentionCall& call) const;
  AttentionState make_state() const;
  void members(auto&& visit) { visit("W", W); }
};

namespace detail {

struct Additive;  // the formula

// What Luong's concat and Bahdanau's attention share: scores v . tanh(W q_i + U k_j + b).
struct AdditiveMechanism {
  Parameter W, U;   // [heads, units, size]
  Parameter score;  // [heads, units]: v of the formula
  Parameter gain;   // [heads], or undefined
  Parameter bias;   // [heads, units], or undefined

  AttentionCapabilities capabilities() const { return AttentionCapabilities::of_pairs(); }
  Tensor apply(In q, In k, In v, const AttentionCall& call) const;
  Tensor map_keys(In k, const AttentionCall& call) const;
  Tensor apply_mapped(In q, In keys, In v, const AttentionCall& call) const;
  AttentionState make_state() const;  // keeps the keys' projections, of all heads

 protected:
  // Makes W and U; units 0: as size. Error, for the mechanism `who`, where there are no heads or no size.
  AdditiveMechanism(const char* who, Exactly<Index> heads, Exactly<Index> size, Exactly<Index> units,
                    Exactly<Index> fan_in, Rng& rng);
  Additive formula() const;
};

}  // namespace detail

struct LuongConcatOptions {
  Index units = 0;  // A; 0: the size of a head
};

struct LuongConcat : detail::AdditiveMechanism {
  LuongConcat(Exactly<Index> heads, Exactly<Index> size, Rng& rng, const LuongConcatOptions& options = {});

  std::string name() const { return "luong-concat"; }
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

  LuongLocation(Exactly<Index> heads, Exactly<Index> size, Rng& rng, const LuongLocationOptions& options);

  std::string name() const { return "luong-location"; }
  AttentionCapabilities capabilities() const { return AttentionCapabilities::of_pairs(); }
  Tensor apply(In q, In k, In v, const AttentionCall& call) const;
  AttentionState make_state() const;
  void members(auto&& visit) { visit("W", W); }
};

// ---- Local attention ----

// Local attention of a decoder (Luong, Pham, Manning, "Effective approaches to attention-based neural machine
// translation", 2015, section 3.2): softmax inside a window around an aligned position p of a sentence of S keys, for
// each head.
//
//   local-m:  p = t, the position of the query, which counts from first_query of the call
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
// Where S is at most 16 windows, products are taken with all keys, of which a mask leaves those in the windows. Else,
// and for concat and shared key heads, the 2 D + 1 keys and values of each query (S where that is less) are gathered:
// time and memory O(S + T D) rows, never T x S, but for a mask or a bias of that size that is given. The sums of
// concat, A numbers per pair, are not held: O(S).

enum class LuongScore { dot, general, concat };
enum class LuongAlignment { monotonic, predictive };  // local-m, local-p

struct LuongLocalOptions {
  LuongScore score = LuongScore::dot;
  LuongAlignment alignment = LuongAlignment::monotonic;
  Index radius = 10;         // D
  bool renormalise = false;  // local-p: the weights add up to 1 after the Gaussian
  // The window is around the key min(floor(p), S - 1) in place of p: past the end of a source it stays at the last D +
  // 1 keys, and p = 3.5 and D = 1 see 2, 3 and 4.
  bool window_around_key = false;
  Index units = 0;  // A of concat and local-p; 0: the size of a head
};

struct LuongLocalAttention {
  LuongLocalOptions options;
  Parameter W, U, bias,
      score;             // general: W [heads, size, size]; concat: W, U [heads, units, size], the others [heads, units]
  Parameter position_W;  // [heads, units, size], of local-p
  Parameter position_score;  // [heads, units], of local-p

  LuongLocalAttention(Exactly<Index> heads, Exactly<Index> size, Rng& rng, const LuongLocalOptions& options = {});

  std::string name() const;
  AttentionCapabilities capabilities() const;
  double keys_per_query(Index positions, Index) const {
    return static_cast<double>(std::min(positions, 2 * options.radius + 1));
  }
  // The length of a sentence is its key_lengths, else S. key_mask, mask and bias act inside the window. Errors: causal;
  // a radius below 1; a negative first_query; parameters that do not fit.
  Tensor apply(In q, In k, In v, const AttentionCall& call) const;
  Tensor positions(In q, In k,
                   const AttentionCall& call = {}) const;  // p, [B, H, T] float64; 0 of a sentence without keys
  void members(auto&& visit) {
    visit("W", W);
    visit("U", U);
    visit("bias", bias);
    visit("score", score);
    visit("position_W", position_W);
    visit("position_score", position_score);
  }
};

// ---- Bahdanau's additive attention ----

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

struct BahdanauOptions {
  Index units = 0;          // A; 0: the size of a head
  bool normalized = false;  // score is normalised; has a gain and a bias
};

// The gain is 1 / sqrt(units) and the bias 0 at first; both are normalised attention's only.
struct BahdanauAttention : detail::AdditiveMechanism {
  BahdanauAttention(Exactly<Index> heads, Exactly<Index> size, Rng& rng, const BahdanauOptions& options = {});

  std::string name() const { return "bahdanau"; }
  void members(auto&& visit) {
    visit("W", W);
    visit("U", U);
    visit("score", score);
    visit("gain", gain);
    visit("bias", bias);
  }
};

}  // namespace heed

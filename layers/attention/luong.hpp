// Attention of encoder-decoder models: Luong's scores, Luong's local attention, and Bahdanau's additive attention.
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
// equations 7 and 8, as mechanisms. Per head and without scaling, with w = softmax_j(s):
//
//   dot:       s_ij = q_i . k_j
//   general:   s_ij = q_i^T W k_j                       W [D, D]
//   concat:    s_ij = v . tanh(W q_i + U k_j + b)       [W U] is the matrix of the paper, which multiplies [q; k]
//   location:  s_ij = W_j . q_i                         one row of W per absolute position of a key
//
// Derivatives, from ds = w * (dw - sum_j w dw):
//
//   general:   dq_i = W sum_j ds_ij k_j     dk_j = W^T sum_i ds_ij q_i     dW = sum_ij ds_ij q_i k_j^T     (dot: W = 1)
//   concat:    as for Bahdanau's attention, below
//   location:  dq_i = sum_j ds_ij W_j       dW_j = sum_i ds_ij q_i         dk = 0

// The dot score, without parameters.
struct LuongDot {
  // The members of a mechanism: see mechanism.hpp.
  std::string name() const { return "luong-dot"; }
  AttentionCapabilities capabilities() const { return AttentionCapabilities::of_pairs({.documents = true}); }
  Tensor apply(In q, In k, In v, const AttentionCall& call) const { return attention(q, k, v, call, 1.0); }
  AttentionState make_state() const { return KeyValueState(*this); }
  void members(auto&&) {}
};

// The general score. Throws Error for heads or a size below 1.
struct LuongGeneral {
  Parameter W;  // [heads, size, size]

  LuongGeneral(Exactly<Index> heads, Exactly<Index> size, Rng& rng);  // W: uniform in +-1/sqrt(size)

  // The members of a mechanism: see mechanism.hpp.
  std::string name() const { return "luong-general"; }
  AttentionCapabilities capabilities() const { return AttentionCapabilities::of_pairs({.documents = true}); }
  Tensor apply(In q, In k, In v, const AttentionCall& call) const;
  AttentionState make_state() const;
  void members(auto&& visit) { visit("W", W); }
};

namespace detail {

struct Additive;  // the formula

// Base class of Luong's concat and Bahdanau's attention: scores v . tanh(W q_i + U k_j + b).
struct AdditiveMechanism {
  Parameter W, U;   // [heads, units, size]
  Parameter score;  // [heads, units]: v of the formula
  Parameter gain;   // [heads], or undefined
  Parameter bias;   // [heads, units], or undefined

  AttentionCapabilities capabilities() const { return AttentionCapabilities::of_pairs({.documents = true}); }
  Tensor apply(In q, In k, In v, const AttentionCall& call) const;
  Tensor map_keys(In k, const AttentionCall& call) const;
  Tensor apply_mapped(In q, In keys, In v, const AttentionCall& call) const;
  AttentionState make_state() const;  // stores the projected keys of all heads

 protected:
  // Makes W and U. units 0: as size. Throws Error that begins with `name` for heads, size or units out of range.
  AdditiveMechanism(const char* name, Exactly<Index> heads, Exactly<Index> size, Exactly<Index> units,
                    Exactly<Index> fan_in, Rng& rng);
  Additive formula() const;
};

}  // namespace detail

// Options of LuongConcat.
struct LuongConcatOptions {
  Index units = 0;  // A; 0: the size of a head
};

// The concat score. Throws Error for heads or a size below 1, and for negative units.
struct LuongConcat : detail::AdditiveMechanism {
  // Initial values are uniform in +-1/sqrt(2 size), and in +-1/sqrt(units) for score.
  LuongConcat(Exactly<Index> heads, Exactly<Index> size, Rng& rng, const LuongConcatOptions& options = {});

  // The members of a mechanism: see mechanism.hpp. The others are in the base class.
  std::string name() const { return "luong-concat"; }
  void members(auto&& visit) {
    visit("W", W);
    visit("U", U);
    visit("bias", bias);
    visit("score", score);
  }
};

// Options of LuongLocation.
struct LuongLocationOptions {
  Index positions = 0;  // maximum number of keys; must be given
};

// The location score. Throws Error for heads, a size or positions below 1, and for more keys than positions.
struct LuongLocation {
  Parameter W;  // [heads, positions, size]

  // Initial values are uniform in +-1/sqrt(size).
  LuongLocation(Exactly<Index> heads, Exactly<Index> size, Rng& rng, const LuongLocationOptions& options);

  // The members of a mechanism: see mechanism.hpp.
  std::string name() const { return "luong-location"; }
  AttentionCapabilities capabilities() const { return AttentionCapabilities::of_pairs(); }
  Tensor apply(In q, In k, In v, const AttentionCall& call) const;
  AttentionState make_state() const;
  void members(auto&& visit) { visit("W", W); }
};

// ---- Local attention ----

// Local attention of a decoder (Luong, Pham, Manning, "Effective approaches to attention-based neural machine
// translation", 2015, section 3.2), as a mechanism: softmax inside a window around a position p in a sentence of S
// keys. Per head:
//
//   local-m:  p = t, the position of the query, counted from first_query of the call
//   local-p:  p = S sigmoid(v . tanh(W q))             zero-based, W [A, D], v [A]
//   keys j in [p - D, p + D]: w = softmax_j(s_j), with s as above
//     p = 3.5 and D = 1 give keys 3 and 4. At the end of the source the window of local-m shrinks; past it, it is empty
//   local-p:  w_j *= e^(-(j - p)^2 / (2 sigma^2)), sigma = D / 2; the w_j then sum to less than 1, unless `renormalise`
//
//   dp = sum_j w_j (dw_j - [renormalise] sum_k w_k dw_k) (j - p) / sigma^2       (w: final weights)
//
// The window is constant in the gradient. p is computed in float64 for all dtypes. A rounded p could move the window,
// and the float32 and float64 models would differ.
//
// If S is at most 16 windows, scores are computed for all keys and masked. Otherwise, and for concat and shared key
// heads, the 2 D + 1 keys and values of each query (S if fewer) are gathered: O(S + T D) rows of time and memory. No
// tensor of T x S is made, except a mask or bias that is given. The sums of concat, A numbers per pair, are computed
// again in backward and need memory for O(S) rows.

// The scores of local attention, as above.
enum class LuongScore { dot, general, concat };
enum class LuongAlignment { monotonic, predictive };  // local-m, local-p

// Options of LuongLocalAttention.
struct LuongLocalOptions {
  LuongScore score = LuongScore::dot;                    // concat and general have parameters
  LuongAlignment alignment = LuongAlignment::monotonic;  // local-p has parameters
  Index radius = 10;         // D
  bool renormalise = false;  // local-p: divide by the sum of weights after the Gaussian
  // The window is centred on key min(floor(p), S - 1) instead of p. Past the end of a source it contains the last D + 1
  // keys, and p = 3.5 and D = 1 give keys 2, 3 and 4.
  bool window_around_key = false;
  Index units = 0;  // A of concat and local-p; 0: the size of a head
};

// Local attention. Throws Error for heads, a size or a radius below 1, and for negative units.
struct LuongLocalAttention {
  LuongLocalOptions options;  // the argument of the constructor
  // general: W [heads, size, size]. concat: W and U [heads, units, size], bias and score [heads, units].
  Parameter W, U, bias, score;
  Parameter position_W;      // [heads, units, size]; local-p
  Parameter position_score;  // [heads, units]; local-p

  // Makes the parameters that the options need; the others are undefined.
  LuongLocalAttention(Exactly<Index> heads, Exactly<Index> size, Rng& rng, const LuongLocalOptions& options = {});

  // The members of a mechanism: see mechanism.hpp.
  std::string name() const;
  AttentionCapabilities capabilities() const;
  double keys_per_query(Index positions, Index) const {
    return static_cast<double>(std::min(positions, 2 * options.radius + 1));
  }
  // The length of a sentence is key_lengths of the call, or S. key_mask, mask and bias act inside the window. Throws
  // Error for a causal call, a radius below 1, a negative first_query, and parameters of wrong shapes.
  Tensor apply(In q, In k, In v, const AttentionCall& call) const;
  // p as [B, H, T] float64; 0 for a sentence without keys.
  Tensor positions(In q, In k, const AttentionCall& call = {}) const;
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
// translate", 2015, section A.1.2), as a mechanism. Per head:
//
//   t_ij = tanh(W q_i + U k_j + b)     s_ij = v . t_ij, or normalised g v / |v| . t_ij     w = softmax_j(s)
//   ds = w * (dw - sum_j w dw)         e_ij = ds_ij u * (1 - t_ij^2), where u = v or g v / |v|
//   d(W q_i) = sum_j e_ij              d(U k_j) = sum_i e_ij            db = sum_ij e_ij        du = sum_ij ds_ij t_ij
//   dg = v / |v| . du                  dv = g / |v| (du - v / |v| (v / |v| . du)), or du
//
// The normalisation with g and b follows Salimans and Kingma, "Weight normalization", 2016, and TensorFlow's
// BahdanauAttention. t has T x S x A numbers, which are never stored together: see
// core/kernels/additive_attention/additive_attention.hpp.

// Options of BahdanauAttention.
struct BahdanauOptions {
  Index units = 0;          // A; 0: the size of a head
  bool normalized = false;  // normalises score; adds a gain and a bias
};

// Bahdanau's additive attention. With `normalized`, gain is initially 1 / sqrt(units) and bias 0; otherwise they are
// undefined. Throws Error for heads or a size below 1, and for negative units.
struct BahdanauAttention : detail::AdditiveMechanism {
  // Initial values are uniform in +-1/sqrt(size), and in +-1/sqrt(units) for score.
  BahdanauAttention(Exactly<Index> heads, Exactly<Index> size, Rng& rng, const BahdanauOptions& options = {});

  // The members of a mechanism: see mechanism.hpp. The others are in the base class.
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

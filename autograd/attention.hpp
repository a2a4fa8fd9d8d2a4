// Softmax attention as ops: over all keys, over listed keys, and with additive scores. Also the masks of a call as
// tensors, for attention composed of other ops.
//
// Example:
//
//   Rng rng(1);
//   const Tensor q = rng.normal({2, 4, 10, 16}), k = rng.normal({2, 2, 10, 16}), v = rng.normal({2, 2, 10, 16});
//   const Tensor lengths = Tensor::from<std::int32_t>({10, 7});
//   const AttentionCall call{.causal = true, .key_lengths = lengths};
//   const Tensor y = attention(q, k, v, call);  // [2, 4, 10, 16]
//   const Tensor allowed = allowed_pairs(q, k, call);
#pragma once
#include <algorithm>
#include <heed/autograd/record.hpp>
#include <heed/core/kernel_interface.hpp>
#include <heed/core/tensor.hpp>
#include <optional>

namespace heed {

class MemberVisitor;

// ---- The call ----

// How one application of attention attends: the argument of every attention op, mechanism and layer in addition to
// queries, keys and values.
//
//   attention(q, k, v, {.causal = true, .key_lengths = lengths});
//
// A query attends to a key if causal, key_lengths, key_mask, documents, mask and a bias above -infinity all allow the
// pair. A key that is not allowed has no effect at all, even if the key or its value is NaN or infinite. An allowed key
// counts whatever its weight: a NaN or infinite value whose weight rounds to 0 makes the result NaN, as 0 * infinity is
// NaN. A query without any allowed key gets zeros and passes no gradient on.

// B sequences, H heads, T queries, S keys. Undefined tensors restrict nothing. In masks, true = may be attended to, as
// in PyTorch's scaled_dot_product_attention and opposite to nn.MultiheadAttention.
struct AttentionCall {
  bool causal = false;      // query i sees keys j <= i + S - T: queries are aligned with the end of the keys
  Tensor key_lengths = {};  // int32 [B], each from 0 to S: keys of sequence b from key_lengths[b] on are padding
  Tensor key_mask = {};     // bool8 [B, S]: true = may be attended to
  // int32 [B, T], for rows that hold several documents: the position in the row at which each position's document
  // begins, so i or the number before. Query i sees keys j >= documents[b, i]. Requires causal and T = S. Layers count
  // positions from the beginning of each document: see positions_in_documents().
  Tensor documents = {};
  Tensor mask = {};  // bool8, broadcasts to [B, H, T, S]: true = query i may attend to key j
  // Broadcasts to [B, H, T, S]; added to the scores. If it needs a gradient, backward holds one tensor of [B, H, T, S].
  Tensor bias = {};
  double dropout = 0;  // share of weights set to 0; the others are divided by 1 - dropout; in training only
  // int32 [B], or [] for all rows: the position of the first query in its own sequence, for a decoder that runs one
  // step per call; undefined: 0. Read by mechanisms that align queries and keys by position (luong-local-m).
  Tensor first_query = {};

  // The tensors, for pick_rows() of a state that keeps a call. Those that do not depend on the batch are shared.
  void members(MemberVisitor& visit);
};

// The positions of the rows of AttentionCall::documents, counted from the beginning of each document: int32 [B, T].
//
//   documents  0 0 0 3 3 5        positions_in_documents  0 1 2 0 1 0
//
// Throws Error unless documents is int32 [B, T], and each number is its index in the row or the number before.
Tensor positions_in_documents(const Tensor& documents);

// ---- All keys ----

// Softmax attention (Vaswani et al., "Attention is all you need", 2017) as one op, computed in blocks without the
// matrix of queries by keys (Dao, "FlashAttention-2", 2023). Derivation in core/kernels/attention/attention.hpp.

// softmax(scale * q k^T + bias) v: q [B, H, T, D], k [B, Hk, S, D], v [B, Hk, S, Dv] -> [B, H, T, Dv]. The heads of a
// position are adjacent in memory. Hk divides H: query heads h * (H / Hk) ... share key-value head h. Views whose last
// stride is 1 are read in place. The scale is 1 / sqrt(D) by default. The same bits at any number of threads.
// q, k and v are all float32, all float64, or all bfloat16. For bfloat16 the result is bfloat16, and bias, scores,
// softmax, sums and gradients are float32. On levels with bf16 dot products, weights and their derivatives are rounded
// to bf16 for the products that follow, as in FlashAttention. Throws Error for other shapes and types.
Tensor attention(In q, In k, In v, const AttentionCall& call = {}, std::optional<double> scale = {});

// ---- Listed keys ----

// Softmax attention of each query over its own list of keys, for sparse mechanisms that have chosen the keys (patterns:
// Child et al., "Generating long sequences with sparse Transformers", 2019; Beltagy et al., "Longformer", 2020). Time
// and memory grow with the number of listed pairs. Derivation in core/kernels/attention/sparse.hpp.

// Query i attends to keys[offsets[i], offsets[i + 1]), in ascending order and without repeats. offsets int32 [T + 1]
// for lists shared by all heads, or [B, H, T + 1], where each head's lists follow the lists of the head before; keys
// int32 [n].
struct KeyLists {
  Tensor offsets = {}, keys = {};  // int32, in the layout above

  auto tensors() { return std::tie(offsets, keys); }  // for saved(): a KeyLists can be kept for backward
};

// softmax(scale * q k^T + bias) v over the listed keys.
// q [B, H, T, D], k [B, Hk, S, D], v [B, Hk, S, Dv] -> [B, H, T, Dv]. The heads of a position are adjacent in memory.
// float32 or float64; Hk divides H. Lists are constants. `causal` is not read: the lists must be causal themselves.
// mask and bias are read at the listed pairs only; the gradient of a bias has the shape of the bias. Dropout draws the
// same numbers as attention(). The scale is 1 / sqrt(D) by default. The same bits at any number of threads. Throws
// Error for other shapes and types, and for invalid lists.
Tensor sparse_attention(In q, In k, In v, const KeyLists& lists, const AttentionCall& call = {},
                        std::optional<double> scale = {});

// ---- Additive scores ----

// Additive attention (Bahdanau, Cho and Bengio, "Neural machine translation by jointly learning to align and
// translate", 2015): the score of a pair is a small network of one hidden layer. Neither forward nor backward holds a
// tensor of T x S x A or of T x S. Derivation in core/kernels/additive_attention/additive_attention.hpp.

// softmax_j(u . tanh(q_i + k_j) + bias_ij) v, with projected queries q (W q + b) and keys k (U k).
// q [B, H, T, A], k [B, Hk, S, A], v [B, Hk, S, Dv], u [H, A] -> [B, H, T, Dv]. The heads of a position are adjacent in
// memory. float32 or float64. Hk divides H: query heads h * (H / Hk) ... share key-value head h. Views whose last
// stride is 1 are read in place. The same bits at any number of threads. Throws Error for other shapes and types.
Tensor additive_attention(In q, In k, In v, In u, const AttentionCall& call = {});

// ---- Masks as tensors ----

// The pairs that a call allows, as tensors. Attention composed of ops applies them by a softmax over the allowed pairs,
// and by keys and values without the contents of padding. (Kernels: core/kernels/attention/masks.hpp.)
//
//   const Tensor s = matmul(q, without_padding(k, call).t()) * scale;
//   return matmul(masked_softmax(call.bias.defined() ? s + call.bias : s, allowed_pairs(q, k, call)),
//                 without_padding(v, call));

// causal, key_lengths, key_mask, documents and mask of the call in one: bool8, true = may be attended to, of a shape
// that broadcasts to [B, H, T, S]. q [B, H, T, D], k [B, Hk, S, D]. All true if the call restricts nothing.
Tensor allowed_pairs(In q, In k, const AttentionCall& call);

// The same as numbers to add to scores, in q's dtype. Where a pair is allowed: the call's bias, or 0. Elsewhere: -inf,
// whatever the bias. softmax() of a row that is all -inf is NaN; see masked_softmax().
Tensor additive_mask(In q, In k, const AttentionCall& call);

// The softmax of scores [B, H, T, S] over the allowed pairs. Weights of other pairs are 0. Rows without an allowed pair
// are 0 and pass no gradient on.
Tensor masked_softmax(In scores, In allowed);

// Keys or values x [B, Hk, S, D] with 0 at the positions that key_lengths and key_mask exclude. Contents of padding,
// including NaN, reach neither the result nor a gradient. Returns x itself if the call has neither. Throws Error that
// begins with `op`.
Tensor without_padding(In x, const AttentionCall& call, const char* op = "without_padding");

namespace detail {

// allowed_pairs() for queries [first, last) and keys [0, keys) of the grid [B, H, T, S]; undefined if all pairs are
// allowed. The call must have been checked.
Tensor allowed_block(const AttentionCall& call, const Shape& grid, Index first, Index last, Index keys);

// The part of weights v that comes from values that are not finite, for weights and seen [.., T, S] and v [.., S, Dv]:
// add it to the product of the weights and the finite values. NaN where a seen key has the value NaN, or an infinity
// with weight 0; infinity where a weight other than 0 meets one; else 0. Keys that are not seen (0 in `seen`, otherwise
// 1) have no effect. No gradient.
Tensor non_finite_part(const Tensor& weights, const Tensor& v, const Tensor& seen);

// causal, key_lengths, key_mask, documents and mask of a checked call, for mechanisms that choose their keys one by
// one.
class PairMasks {
 public:
  PairMasks(const AttentionCall& call, const Shape& grid)  // [B, H, T, S]
      : queries_(grid[2]),
        keys_(grid[3]),
        causal_(call.causal),
        lengths_(call.key_lengths.defined() ? call.key_lengths.dense() : Tensor()),
        key_mask_(call.key_mask.defined() ? call.key_mask.dense() : Tensor()),
        documents_(call.documents.defined() ? call.documents.dense() : Tensor()),
        mask_(call.mask.defined() ? call.mask.expand(grid) : Tensor()) {}

  // Keys from this position on are padding.
  Index length(Index b) const { return lengths_.defined() ? lengths_.ptr<std::int32_t>()[b] : keys_; }
  // End of the keys visible to query i, by causal and lengths.
  Index end(Index b, Index i) const {
    const Index seen = causal_ ? causal_end(query_position(i, queries_, keys_), keys_) : keys_;
    return std::min(seen, length(b));
  }
  // Whether the lengths and the key mask allow key j.
  bool unmasked(Index b, Index j) const {
    return j < length(b) && (!key_mask_.defined() || key_mask_.ptr<bool>()[b * keys_ + j]);
  }
  // Whether query i may attend to key j, for j < end(b, i).
  bool allows(Index b, Index h, Index i, Index j) const {
    if (key_mask_.defined() && !key_mask_.ptr<bool>()[b * keys_ + j]) return false;
    if (documents_.defined() && j < documents_.ptr<std::int32_t>()[b * queries_ + i]) return false;
    if (!mask_.defined()) return true;
    const Strides& s = mask_.strides();
    return mask_.ptr<bool>()[b * s[0] + h * s[1] + i * s[2] + j * s[3]];
  }

 private:
  Index queries_, keys_;
  bool causal_;
  Tensor lengths_, key_mask_, documents_, mask_;
};

}  // namespace detail
}  // namespace heed

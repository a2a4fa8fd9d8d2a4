// Softmax attention as ops: of all keys, of listed keys, of additive scores; and the masks of a call as tensors, for
// what is composed of other ops.
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
#include <heed/core/tensor.hpp>
#include <optional>

namespace heed {

// ---- The call ----

// How one application of attention attends: what every attention op, mechanism and layer takes beside its queries, keys
// and values.
//
//   attention(q, k, v, {.causal = true, .key_lengths = lengths});
//
// A key takes part for a query where all of causal, key_lengths, key_mask, mask and a bias above -infinity allow it. A
// key that does not has no effect at all, even if it or its value is NaN or infinite. One that does is seen whatever
// its weight: a NaN or infinite value with a weight that rounds to 0 makes the result NaN, as 0 * infinity is. A query
// without any key gets zeros and passes no gradient on.

// B sequences, H heads, T queries, S keys. Undefined tensors ask for nothing. In masks true means: may be attended to,
// as in PyTorch's scaled_dot_product_attention, and the opposite of what nn.MultiheadAttention has.
struct AttentionCall {
  bool causal = false;      // query i sees keys j <= i + S - T: the ends are aligned
  Tensor key_lengths = {};  // int32 [B], each from 0 to S: keys of sequence b from key_lengths[b] on are padding
  Tensor key_mask = {};     // bool8 [B, S]: true = may be attended to
  Tensor mask = {};         // bool8, broadcasts to [B, H, T, S]: true = query i may attend to key j
  Tensor bias = {};    // broadcasts to [B, H, T, S]; added to the scores. Where it has a gradient, backward holds one
                       // tensor of [B, H, T, S]
  double dropout = 0;  // share of weights set to 0, the others divided by 1 - dropout; acts in training only
  // int32 [B], or [] for all rows: where the first query stands in a sequence of its own, as the step of a decoder that
  // attends once a step; undefined: 0. Read by mechanisms that align queries and keys by their places (luong-local-m).
  Tensor first_query = {};
};

// ---- All keys ----

// Softmax attention (Vaswani et al., "Attention is all you need", 2017) as one op: in blocks, without the matrix of
// queries by keys (Dao, "FlashAttention-2", 2023). Derivation in core/kernels/attention.hpp.

// softmax(scale * q k^T + bias) v: q [B, H, T, D], k [B, Hk, S, D], v [B, Hk, S, Dv] -> [B, H, T, Dv], whose heads lie
// side by side in memory. Hk divides H: query heads h * (H / Hk) ... share key-value head h. Any strides whose last is
// 1 are read in place. The scale is 1 / sqrt(D) unless given. The same bits at any number of threads.
// q, k and v are all float32, all float64, or all bfloat16. Of bfloat16 the result is bfloat16, a bias float32, and
// gradients are float32. Scores, softmax and sums are float32 then; where the level has dot products of bf16, weights
// and their derivatives are rounded to bf16 for the products that follow, as in FlashAttention.
Tensor attention(In q, In k, In v, const AttentionCall& call = {}, std::optional<double> scale = {});

// ---- Listed keys ----

// Softmax attention of each query over its own list of keys: what sparse mechanisms have in common once they have
// chosen (patterns: Child et al., "Generating long sequences with sparse Transformers", 2019; Beltagy et al.,
// "Longformer", 2020). Time and memory grow with the number of listed pairs. Derivation in
// core/kernels/sparse_attention.hpp.

// Query i attends to keys[offsets[i], offsets[i + 1]), which ascend, each once. offsets int32 [T + 1], the same lists
// for all heads, or [B, H, T + 1], each head's lists behind those of the head before; keys int32 [n].
struct KeyLists {
  Tensor offsets = {}, keys = {};

  auto tensors() { return std::tie(offsets, keys); }
};

// softmax(scale * q k^T + bias) v over the listed keys: q [B, H, T, D], k [B, Hk, S, D], v [B, Hk, S, Dv] ->
// [B, H, T, Dv], whose heads lie side by side in memory. float32 or float64; Hk divides H. Lists are constants; causal
// is their matter, and not looked at. mask and bias are read at the listed pairs alone; the gradient of a bias has the
// bias's own shape. Dropout draws the numbers that attention() draws. The scale is 1 / sqrt(D) unless given. The same
// bits at any number of threads.
Tensor sparse_attention(In q, In k, In v, const KeyLists& lists, const AttentionCall& call = {},
                        std::optional<double> scale = {});

// ---- Additive scores ----

// Additive attention (Bahdanau, Cho and Bengio, "Neural machine translation by jointly learning to align and
// translate", 2015): a pair's score is a small network of one hidden layer. Neither forward nor backward holds a tensor
// of T x S x A, or one of T x S. Derivation in core/kernels/additive_attention.hpp.

// softmax_j(u . tanh(q_i + k_j) + bias_ij) v: projected queries q [B, H, T, A] (W q + b) and keys k [B, Hk, S, A] (U
// k), v [B, Hk, S, Dv], u [H, A] -> [B, H, T, Dv], whose heads lie side by side in memory. float32 or float64. Hk
// divides H: query heads h * (H / Hk) ... share key-value head h. Any strides whose last is 1 are read in place. The
// same bits at any number of threads.
Tensor additive_attention(In q, In k, In v, In u, const AttentionCall& call = {});

// ---- Masks as tensors ----

// Which pairs a call allows, as tensors: what an attention that is composed of ops needs to honour it, a softmax over
// these pairs, and keys and values without what padding holds. (Kernels: core/kernels/attention_masks.hpp.)
//
//   const Tensor s = matmul(q, without_padding(k, call).t()) * scale;
//   return matmul(masked_softmax(call.bias.defined() ? s + call.bias : s, allowed_pairs(q, k, call)),
//                 without_padding(v, call));

// causal, key_lengths, key_mask and mask of the call in one: bool8, true = may attend, of a shape that broadcasts to
// [B, H, T, S]. q [B, H, T, D], k [B, Hk, S, D]. Nothing is asked for: all true.
Tensor allowed_pairs(In q, In k, const AttentionCall& call);

// The same as numbers to add to scores, in the dtype of q: the bias of the call, else 0, where a pair is allowed, and
// -inf where it is not, whatever the bias. softmax() of a row that is -inf throughout is NaN: see masked_softmax().
Tensor additive_mask(In q, In k, const AttentionCall& call);

// The softmax of scores [B, H, T, S] over the allowed pairs. Weights are 0 where a pair is not allowed and in rows
// without any, which pass no gradient on.
Tensor masked_softmax(In scores, In allowed);

// x [B, Hk, S, D], keys or values, with 0 for the positions that key_lengths and key_mask leave out, by select: what
// padding holds, NaN included, reaches neither the result nor a gradient. x itself where there is neither. Errors begin
// with `op`.
Tensor without_padding(In x, const AttentionCall& call, const char* op = "without_padding");

namespace detail {

// Of queries [first, last) and keys [0, keys) of the grid [B, H, T, S]: as allowed_pairs(); undefined where all pairs
// are allowed. The call was checked.
Tensor allowed_block(const AttentionCall& call, const Shape& grid, Index first, Index last, Index keys);

// For mechanisms that choose their keys one by one: causal, key_lengths, key_mask and mask of a call in one. The call
// was checked.
class PairMasks {
 public:
  PairMasks(const AttentionCall& call, const Shape& grid)  // [B, H, T, S]
      : queries_(grid[2]),
        keys_(grid[3]),
        causal_(call.causal),
        lengths_(call.key_lengths.defined() ? call.key_lengths.dense() : Tensor()),
        key_mask_(call.key_mask.defined() ? call.key_mask.dense() : Tensor()),
        mask_(call.mask.defined() ? call.mask.expand(grid) : Tensor()) {}

  // Keys from here on are padding.
  Index length(Index b) const { return lengths_.defined() ? lengths_.ptr<std::int32_t>()[b] : keys_; }
  // Keys that query i sees end here: lengths and the triangle.
  Index end(Index b, Index i) const {
    return causal_ ? std::clamp<Index>(i + keys_ - queries_ + 1, 0, length(b)) : length(b);
  }
  // By lengths and the key mask.
  bool unmasked(Index b, Index j) const {
    return j < length(b) && (!key_mask_.defined() || key_mask_.ptr<bool>()[b * keys_ + j]);
  }
  // For j < end(b, i).
  bool allows(Index b, Index h, Index i, Index j) const {
    if (key_mask_.defined() && !key_mask_.ptr<bool>()[b * keys_ + j]) return false;
    if (!mask_.defined()) return true;
    const Strides& s = mask_.strides();
    return mask_.ptr<bool>()[b * s[0] + h * s[1] + i * s[2] + j * s[3]];
  }

 private:
  Index queries_, keys_;
  bool causal_;
  Tensor lengths_, key_mask_, mask_;
};

}  // namespace detail
}  // namespace heed

// Which pairs a call allows, as tensors: what an attention that is composed of ops needs to honour it, a softmax over
// these pairs, and keys and values without what padding holds. (Kernels: core/kernels/attention_masks.hpp.)
//
//   const Tensor s = matmul(q, without_padding(k, call).t()) * scale;
//   return matmul(masked_softmax(call.bias.defined() ? s + call.bias : s, allowed_pairs(q, k, call)),
//                 without_padding(v, call));
#pragma once
#include <algorithm>
#include <heed/autograd/attention_call.hpp>

namespace heed {

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

// Of queries [first, last) and keys [0, keys) of the grid [B, H, T, S]: as allowed_pairs(); undefined where all pairs are
// allowed. The call was checked.
Tensor allowed_block(const AttentionCall& call, const Shape& grid, Index first, Index last, Index keys);

// For mechanisms that choose their keys one by one: causal, key_lengths, key_mask and mask of a call in one. The call was
// checked.
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

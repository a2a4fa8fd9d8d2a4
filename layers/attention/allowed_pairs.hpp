// What a mechanism that is composed of ops needs to honour a call: which pairs it allows, a softmax over these, and
// keys and values without what padding holds. AttentionMechanism::apply() has checked the shapes.
//
//   const Tensor s = matmul(q, without_padding(k, call).t()) * scale;
//   return matmul(masked_softmax(call.bias.defined() ? s + call.bias : s, allowed_pairs(q, k, call)),
//                 without_padding(v, call));
#pragma once
#include <heed/layers/attention/mechanism.hpp>

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
// padding holds, NaN included, reaches neither the result nor a gradient. x itself where there is neither.
Tensor without_padding(In x, const AttentionCall& call);

}  // namespace heed

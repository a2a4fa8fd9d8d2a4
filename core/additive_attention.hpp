// Additive attention on plain tensors: splits the work of kernels/additive_attention among threads.
// autograd/additive_attention.hpp has the op.
#pragma once
#include <heed/core/attention.hpp>

namespace heed::detail {

// What it takes, already checked: `pairs` as for softmax attention, with the projected queries [B, H, T, A] and keys
// [B, Hk, S, A] as q and k, and without a scale.
struct AdditiveCall {
  AttentionCall pairs;
  Tensor u;  // [H, A] of q's dtype, contiguous
};

// out [B, H, T, Dv] may have any strides whose last is 1. lse [B, H, T] gets the logarithm of each row's sum, if
// defined.
void additive_attention_forward(const AdditiveCall& x, Tensor& out, Tensor& lse);

struct AdditiveSinks {
  AttentionSinks pairs;
  Tensor du;  // [H, A], contiguous, to overwrite; or undefined
};
void additive_attention_backward(const AdditiveCall& x, const Tensor& out, const Tensor& dout, const Tensor& lse,
                                 AdditiveSinks& d);

// The weights themselves, [B, H, T, S], without dropout.
Tensor additive_attention_weights_of(const AdditiveCall& x);

}  // namespace heed::detail

// Softmax attention on plain tensors: splits the work of kernels/attention among threads. autograd/attention.hpp has
// the op.
#pragma once
#include <heed/core/tensor.hpp>

namespace heed::detail {

// What an attention takes, already checked: q [B, H, T, D], k [B, Hk, S, D], v [B, Hk, S, Dv] of one dtype, float32 or
// float64, with a last axis of stride 1; Hk divides H.
struct AttentionCall {
  Tensor q, k, v;
  Tensor lengths;   // int32 [B], contiguous, or undefined
  Tensor key_mask;  // bool8 [B, S], contiguous, or undefined
  Tensor mask;      // bool8, broadcasts to [B, H, T, S], or undefined
  Tensor bias;      // of q's dtype, likewise
  double scale = 1;
  bool causal = false;
  double dropout = 0;
  std::uint64_t seed = 0, stream = 0, position = 0;  // of the random numbers; see attention_counters
};

// How many counters of the random generator a call with dropout takes.
std::uint64_t attention_counters(const AttentionCall& x);

// out [B, H, T, Dv] may have any strides whose last is 1. lse [B, H, T] gets the base-2 logarithm of each row's sum, if
// defined.
void attention_forward(const AttentionCall& x, Tensor& out, Tensor& lse);

// Gradients to overwrite or add to; undefined: not wanted. Strides as of the inputs.
struct AttentionSinks {
  Tensor dq, dk, dv;
  bool add_dq = false, add_dk = false, add_dv = false;
  Tensor dbias;  // [B, H, T, S], contiguous, zeros
};
void attention_backward(const AttentionCall& x, const Tensor& out, const Tensor& dout, const Tensor& lse,
                        AttentionSinks& d);

// The weights themselves, [B, H, T, S], without dropout.
Tensor attention_weights_of(const AttentionCall& x);

}  // namespace heed::detail

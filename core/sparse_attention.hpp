// Softmax attention over lists of keys, on plain tensors: splits the work of kernels/sparse_attention among threads.
// autograd/sparse_attention.hpp has the op.
#pragma once
#include <heed/core/attention.hpp>
#include <heed/core/sparse_lists.hpp>

namespace heed::detail {

// As their namesakes of core/attention.hpp, for the pairs on the lists; `causal` of the call is not looked at.
void sparse_attention_forward(const AttentionCall& x, const SparseLists& lists, Tensor& out, Tensor& lse);

// Gradients to overwrite or add to; undefined: not wanted. Strides as of the inputs. dbias has strides of 0 where bias
// repeats, and is added to.
void sparse_attention_backward(const AttentionCall& x, const SparseLists& lists, const Tensor& out, const Tensor& dout,
                               const Tensor& lse, AttentionSinks& d);

// The weights, [B, H, T, S], 0 off the lists, without dropout.
Tensor sparse_attention_weights_of(const AttentionCall& x, const SparseLists& lists);

}  // namespace heed::detail

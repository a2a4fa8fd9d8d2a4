// Additive attention (Bahdanau, Cho and Bengio, "Neural machine translation by jointly learning to align and
// translate", 2015): a pair's score is a small network of one hidden layer. Neither forward nor backward holds a tensor
// of T x S x A, or one of T x S. Derivation in core/kernels/additive_attention.hpp.
#pragma once
#include <heed/autograd/attention_call.hpp>
#include <heed/autograd/record.hpp>

namespace heed {

// softmax_j(u . tanh(q_i + k_j) + bias_ij) v: projected queries q [B, H, T, A] (W q + b) and keys k [B, Hk, S, A] (U
// k), v [B, Hk, S, Dv], u [H, A] -> [B, H, T, Dv], whose heads lie side by side in memory. float32 or float64. Hk
// divides H: query heads h * (H / Hk) ... share key-value head h. Any strides whose last is 1 are read in place. The
// same bits at any number of threads.
Tensor additive_attention(In q, In k, In v, In u, const AttentionCall& call = {});

}  // namespace heed

// Additive attention (Bahdanau, Cho and Bengio, "Neural machine translation by jointly learning to align and
// translate", 2015): a pair's score is a small network of one hidden layer. Neither forward nor backward holds a tensor
// of T x S x A, or one of T x S. Derivation in core/kernels/additive_attention.hpp.
#pragma once
#include <heed/autograd/record.hpp>

namespace heed {

// Which keys a query may attend to is what all of causal, key_lengths, key_mask and mask allow. A row without any key
// is zeros and passes no gradient on. Keys and values that are masked have no effect at all, even if they are NaN.
struct AdditiveAttentionOptions {
  bool causal = false;      // query i sees keys j <= i + S - T: the ends are aligned
  Tensor key_lengths = {};  // int32 [B]: keys of sequence b from key_lengths[b] on are padding
  Tensor key_mask = {};     // bool8 [B, S], true: may be attended to
  Tensor mask = {};         // bool8, broadcast to [B, H, T, S], true: i may attend to j
  Tensor bias = {};    // added to the scores, broadcast to [B, H, T, S]; has a gradient, for which backward holds one
                       // tensor of [B, H, T, S]
  double dropout = 0;  // share of weights set to 0, the others divided by 1 - dropout; acts in training only
};

// softmax_j(u . tanh(q_i + k_j) + bias_ij) v: projected queries q [B, H, T, A] (W q + b) and keys k [B, Hk, S, A] (U
// k), v [B, Hk, S, Dv], u [H, A] -> [B, H, T, Dv]. float32 or float64. Hk divides H: query heads h * (H / Hk) ... share
// key-value head h. Any strides whose last is 1 are read in place. The same bits at any number of threads.
Tensor additive_attention(In q, In k, In v, In u, const AdditiveAttentionOptions& options = {});

// The same with the heads side by side, as the output projection takes them: [B, T, H * Dv].
Tensor additive_attention_merged(In q, In k, In v, In u, const AdditiveAttentionOptions& options = {});

// The weights themselves, [B, H, T, S], for pictures and teaching: no gradient, no dropout.
Tensor additive_attention_weights(In q, In k, In u, const AdditiveAttentionOptions& options = {});

}  // namespace heed

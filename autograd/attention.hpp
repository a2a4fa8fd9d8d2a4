// Scaled dot-product attention (Vaswani et al., "Attention is all you need", 2017), in blocks: neither forward nor
// backward holds the T x S matrix of weights. Forward keeps one number a row, and backward computes the weights again
// (FlashAttention-2, Dao 2023).
#pragma once
#include <heed/autograd/record.hpp>
#include <optional>

namespace heed {

// Which keys a query may attend to is what all of causal, key_lengths, key_mask and mask allow: true is "may", as in
// PyTorch's scaled_dot_product_attention, and not as in its nn.MultiheadAttention. A row without any key is zeros and
// passes no gradient on. Keys and values that are masked, or have a bias of -infinity, have no effect at all, even if
// they are NaN. All others take part, whatever their weight: a NaN value of theirs is seen.
struct AttentionOptions {
  bool causal = false;               // query i sees keys j <= i + S - T: the ends are aligned
  std::optional<double> scale = {};  // of q . k, finite; 1 / sqrt(D) unless given
  Tensor key_lengths = {};  // int32 [B], each from 0 to S: keys of sequence b from key_lengths[b] on are padding
  Tensor key_mask = {};     // bool8 [B, S], true: may be attended to
  Tensor mask = {};         // bool8, broadcast to [B, H, T, S], true: i may attend to j
  Tensor bias = {};         // added to the scaled scores, broadcast to [B, H, T, S]; has a gradient, for which backward
                            // holds one tensor of [B, H, T, S]
  double dropout = 0;       // share of weights set to 0, the others divided by 1 - dropout; acts in training only
};

// softmax(scale * q k^T + bias) v: q [B, H, T, D], k [B, Hk, S, D], v [B, Hk, S, Dv] -> [B, H, T, Dv]. float32 or
// float64. Hk divides H: query heads h * (H / Hk) ... share key-value head h (grouped-query attention). Any strides
// whose last is 1, such as the thirds of a fused projection [B, T, 3, H, D] permuted, are read in place. The same bits
// at any number of threads.
Tensor attention(In q, In k, In v, const AttentionOptions& options = {});

// The same with the heads side by side, as the output projection takes them: [B, T, H * Dv].
Tensor attention_merged(In q, In k, In v, const AttentionOptions& options = {});

// The weights themselves, [B, H, T, S], for pictures and teaching: no gradient, no dropout.
Tensor attention_weights(In q, In k, const AttentionOptions& options = {});

}  // namespace heed

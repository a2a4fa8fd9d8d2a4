// How one application of attention attends: what every attention op, mechanism and layer takes beside its queries, keys
// and values.
//
//   attention(q, k, v, {.causal = true, .key_lengths = lengths});
//
// A key takes part for a query where all of causal, key_lengths, key_mask, mask and a bias above -infinity allow it. A
// key that does not has no effect at all, even if it or its value is NaN; one that does is seen whatever its weight: a
// NaN value with a weight that rounds to 0 makes the result NaN. A query without any key gets zeros and passes no
// gradient on.
#pragma once
#include <heed/core/tensor.hpp>

namespace heed {

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
};

}  // namespace heed

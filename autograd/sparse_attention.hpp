// Softmax attention of each query over its own list of keys: what sparse mechanisms have in common once they have
// chosen (patterns: Child et al., "Generating long sequences with sparse Transformers", 2019; Beltagy et al.,
// "Longformer", 2020). Time and memory grow with the number of listed pairs. Derivation in
// core/kernels/sparse_attention.hpp.
#pragma once
#include <heed/autograd/attention_call.hpp>
#include <heed/autograd/record.hpp>
#include <optional>

namespace heed {

// Query i attends to keys[offsets[i], offsets[i + 1]), which ascend, each once. offsets int32 [T + 1], the same lists for
// all heads, or [B, H, T + 1], each head's lists behind those of the head before; keys int32 [n].
struct KeyLists {
  Tensor offsets, keys;

  auto tensors() { return std::tie(offsets, keys); }
};

// softmax(scale * q k^T + bias) v over the listed keys: q [B, H, T, D], k [B, Hk, S, D], v [B, Hk, S, Dv] ->
// [B, H, T, Dv], whose heads lie side by side in memory. float32 or float64; Hk divides H. Lists are constants; causal
// is their matter, and not looked at. mask and bias are read at the listed pairs alone; the gradient of a bias has the
// bias's own shape. Dropout draws the numbers that attention() draws. The scale is 1 / sqrt(D) unless given. The same
// bits at any number of threads.
Tensor sparse_attention(In q, In k, In v, const KeyLists& lists, const AttentionCall& call = {},
                        std::optional<double> scale = {});

}  // namespace heed

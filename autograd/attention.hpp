// Softmax attention (Vaswani et al., "Attention is all you need", 2017) as one op: in blocks, without the matrix of
// queries by keys (Dao, "FlashAttention-2", 2023). Derivation in core/kernels/attention.hpp.
#pragma once
#include <heed/autograd/attention_call.hpp>
#include <heed/autograd/record.hpp>
#include <optional>

namespace heed {

// softmax(scale * q k^T + bias) v: q [B, H, T, D], k [B, Hk, S, D], v [B, Hk, S, Dv] -> [B, H, T, Dv], whose heads lie
// side by side in memory. float32 or float64. Hk divides H: query heads h * (H / Hk) ... share key-value head h. Any
// strides whose last is 1 are read in place. The scale is 1 / sqrt(D) unless given. The same bits at any number of
// threads.
Tensor attention(In q, In k, In v, const AttentionCall& call = {}, std::optional<double> scale = {});

}  // namespace heed

// Softmax attention of each query over its own list of keys: what sparse mechanisms have in common once they have
// chosen (patterns: Child et al., "Generating long sequences with sparse Transformers", 2019; Beltagy et al.,
// "Longformer", 2020). Time and memory grow with the number of listed pairs. Derivation in
// core/kernels/sparse_attention.hpp.
#pragma once
#include <heed/autograd/attention.hpp>
#include <heed/core/sparse_lists.hpp>

namespace heed {

// Query i attends to keys[offsets[i], offsets[i + 1]), which ascend. offsets int32 [T + 1], the same lists for all
// heads, or [B, H, T + 1], each head's lists behind those of the head before; keys int32 [n].
using KeyLists = detail::SparseLists;

// What of these lists may be attended to, and how: as AttentionOptions, but for causal, which is the lists' matter.
// mask and bias are read at the listed pairs alone. Dropout draws the numbers that `attention` draws.
struct SparseAttentionOptions {
  std::optional<double> scale = {};  // of q . k; 1 / sqrt(D) unless given
  Tensor key_lengths = {};           // int32 [B]: keys of sequence b from key_lengths[b] on are padding
  Tensor key_mask = {};              // bool8 [B, S], true: may be attended to
  Tensor mask = {};                  // bool8, broadcast to [B, H, T, S], true: i may attend to j
  Tensor bias = {};    // added to the scaled scores, broadcast to [B, H, T, S]; has a gradient, of its own shape
  double dropout = 0;  // share of weights set to 0, the others divided by 1 - dropout; acts in training only
};

// softmax(scale * q k^T + bias) v over the listed keys: q [B, H, T, D], k [B, Hk, S, D], v [B, Hk, S, Dv] ->
// [B, H, T, Dv]. float32 or float64; Hk divides H. Lists are constants. A row whose list is empty, or whose keys are
// all masked, is zeros and passes no gradient on; masked keys and values may be NaN. The same bits at any number of
// threads.
Tensor sparse_attention(In q, In k, In v, const KeyLists& lists, const SparseAttentionOptions& options = {});

// The same with the heads side by side, as the output projection takes them: [B, T, H * Dv].
Tensor sparse_attention_merged(In q, In k, In v, const KeyLists& lists, const SparseAttentionOptions& options = {});

// The weights themselves, [B, H, T, S], 0 off the lists: no gradient, no dropout.
Tensor sparse_attention_weights(In q, In k, const KeyLists& lists, const SparseAttentionOptions& options = {});

}  // namespace heed

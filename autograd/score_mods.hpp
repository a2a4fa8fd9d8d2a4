// Functions of scores and masks that are ready for flex_attention(): faster than the same written as a lambda, as they are
// kernels.
//
//   const Tensor y = flex_attention(q, k, v, {.score_mod = alibi(heads)}, {.causal = true});
//   const BlockMask near = create_block_mask(sliding_window(256, 4), 1, 1, T, S);
#pragma once
#include <heed/autograd/flex_attention.hpp>

namespace heed {

// s - slope_h |q - k|, with slopes [H] (Press, Smith, Lewis, "Train short, test long: attention with linear biases enables
// input length extrapolation", 2022). alibi(heads) has the paper's slopes.
ScoreMod alibi(const Tensor& slopes);
ScoreMod alibi(Index heads);
// 2^(-8/H), 2^(-16/H), ...; where H is no power of 2, those of the power below, and then every other one of the power above,
// as in the paper's code. float32 [H].
Tensor alibi_slopes(Index heads);

// c tanh(s / c): scores stay within (-c, c) (Gemma 2, 2024: c = 50). As a tensor, c is [] or [1], or [H], and may be trained.
ScoreMod soft_cap(double c);
ScoreMod soft_cap(const Tensor& c);

// s + table[h, clip + min(max(k - q, -clip), clip)]: a number for each head and clipped distance, as of
// relative_position_bias(), without its matrices. The table is [H, 2 clip + 1], or [1, 2 clip + 1] for all heads.
ScoreMod relative_bias(const Tensor& table);

// s + table[h, bucket(k - q)]: T5's biases (Raffel et al. 2020), whose buckets widen with the distance up to max_distance. The
// table is [H, buckets], or [1, buckets]. bidirectional: half of the buckets are for keys behind the query; else those are all
// in bucket 0, as in T5's decoder. PyTorch's transformers have the table as [buckets, H].
struct T5BiasOptions {
  bool bidirectional = true;
  Index max_distance = 128;
};
ScoreMod t5_bias(const Tensor& table, const T5BiasOptions& options = {});
Index t5_bucket(Index distance, Index buckets, const T5BiasOptions& options = {});  // of distance k - q

// ---- Masks: for create_block_mask(), and_masks() and or_masks() ----

// Keys less than `window` positions away, before or after the query; and the first `sinks` keys for all queries (Xiao et
// al., "Efficient streaming language models with attention sinks", 2024). With causal attention: the last `window` keys.
inline auto sliding_window(Index window, Index sinks = 0) {
  return [w = static_cast<int>(window), n = static_cast<int>(sinks)](int, int, int q, int k) {
    return bool(((q - k < w) & (k - q < w)) | (k < n));
  };
}
// The first `length` positions see each other, others those before them: with it, the call is not causal.
inline auto prefix_causal(Index length) {
  return [n = static_cast<int>(length)](int, int, int q, int k) { return bool((k < n) | (k <= q)); };
}

}  // namespace heed

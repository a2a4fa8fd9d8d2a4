// Softmax attention in blocks, forward and backward, without the T x S matrix: the online softmax of Milakov and
// Gimelshein (2018) and the blocking of FlashAttention-2 (Dao, 2023), laid out for vectors: the lanes of a vector are
// queries, so that maxima, sums and the rescaling of a row are plain vector operations.
//
// The formulas, for one head, with j running over the keys that query i may attend to:
//
//   s_ij = scale * q_i . k_j + bias_ij     L_i = log2 sum_j 2^(s_ij log2(e))     p_ij = 2^(s_ij log2(e) - L_i)
//   o_i  = sum_j m_ij p_ij v_j             m_ij = 0 or 1 / (1 - dropout); 1 without dropout
//
//   dv_j = sum_i m_ij p_ij do_i            delta_i = do_i . o_i
//   ds_ij = p_ij (m_ij do_i . v_j - delta_i)
//   dq_i = scale * sum_j ds_ij k_j         dk_j = scale * sum_i ds_ij q_i        dbias_ij = ds_ij
//
// With a function f of scores (flex_attention), and a sink z_h, a logit of the denominator alone:
//
//   x_ij = scale * q_i . k_j + bias_ij     s_ij = f(x_ij)     L_i = log2(2^(z_h log2(e)) + sum_j 2^(s_ij log2(e)))
//   dx_ij = f'(x_ij) ds_ij                 takes the place of ds_ij in the last row above
//   dz_h = -sum_i 2^(z_h log2(e) - L_i) delta_i
//
// Memory: rows of q, k and v are read in place, through their strides, and copied block by block into scratch that
// stays in the nearest cache: keys as rows [keys, width], queries as columns [width, lanes]. "Whole vectors" means that
// a row is padded with zeros to a multiple of the vector's width.
//
// bfloat16 q, k, v and out: scores, softmax, sums and gradients are float32. Where the level has a dot product of pairs
// (avx512_bf16), the operands of all products are bf16: p and ds are rounded for theirs, as in FlashAttention.
// Elsewhere rows are widened as they are copied into scratch. Where one weight is near 1, do . v - delta cancels, and
// an `o` of 8 bits would leave only what that rounding did to delta: so backward has 8 more of each, its rest, and
// delta is of the same `do` as the product, rounded where that is.
#pragma once
#include "../kernel_interface.hpp"
#include "dispatch.hpp"
#include "head_rows.hpp"

namespace heed::kernels {

// A tensor that is broadcast to [batch, head, query, key]: strides of 0 where it repeats. Null: absent.
template <class T>
struct ScoreGrid {
  T* data;
  int64_t batch, head, query, key;
};

// What flex_attention adds. All null: nothing.
template <class T>
struct ScoreRules {
  ScoreFunction<T> f;              // apply null: f(x) = x
  const ScoreContext<T>* context;  // of f
  const T* sinks;                  // [heads]: z; or null
  const BlockKind* blocks;         // of kBlockQueries by kBlockKeys, by these strides, the last of which is 1; or null
  int64_t block_batch, block_head, block_query;
  MaskFunction<T> mask;       // for blocks of which a part may be seen
  const void* mask_function;  // what it is called with
  const int32_t* positions;   // [batch]: where the first query stands among the keys; null: keys - queries
};

// T: of scores, sums and gradients; S: of q, k, v and out in memory, T itself or uint16_t, which is bf16.
template <class T, class S = T>
struct AttentionProblem {
  int64_t batch, heads, kv_heads, queries, keys, width, value_width;
  T scale;
  bool causal;
  HeadRows<const S> q, k, v;
  const int32_t* lengths;   // [batch]: keys from here on are padding; or null
  const uint8_t* key_mask;  // [batch, keys]: 0 where a key is masked; or null
  ScoreGrid<const uint8_t> mask;
  ScoreGrid<const T> bias;
  // Dropout: weight (b, h, i, j) falls where word j % 4 of philox(seed, position + ((b * heads + h) * queries + i) *
  // ceil(keys / 4) + j / 4, stream) is below `drop_below`; the others are multiplied by `keep`. 0: no dropout.
  uint64_t seed, stream, position;
  uint32_t drop_below;
  T keep;
  ScoreRules<T> rules;
};

template <class T, class S = T>
struct AttentionOutput {
  HeadRows<S> out;
  T* lse;                  // [batch, heads, queries]: L, and +inf for a row without a key; or null
  HeadRows<uint8_t> rest;  // of a bf16 out that has an lse: 8 more bits of each number, rows of rest_width()
};
// Bytes of a row of AttentionOutput::rest, in whole vectors of every level.
constexpr int64_t rest_width(int64_t value_width) { return (value_width + 15) / 16 * 16; }

// What comes in and goes out backward, in every attention with a score for each pair.
template <class T, class S = T>
struct PairGradients {
  HeadRows<const S> out;
  HeadRows<const T> dout;
  const T* lse;            // [batch, heads, queries]: L, and +inf for a row without a key
  HeadRows<T> dq, dk, dv;  // null data: not wanted
  bool add_dq, add_dk, add_dv;
};

template <class T, class S = T>
struct AttentionGradients : PairGradients<T, S> {
  HeadRows<const uint8_t> rest;  // of out, where that is bf16
  T* dbias;       // [batch, heads, queries, keys], zeros before; or null
  T* partial_dq;  // [groups, batch, heads, query tiles, tile_size], zeros before where there is a mask of blocks; null
                  // where there is one block of keys
  int64_t groups, block_keys;  // keys of a block: a multiple of the step of back_keys, at most back_keys
  const ScoreContext<T>* context;  // of this task, whose sums are its own; null: no parameter's gradient is wanted
};

// Sizes that the driver needs to split the work.
struct AttentionSizes {
  int64_t lanes;        // queries of a tile
  int64_t max_rows;     // queries of a forward block at most
  int64_t back_lanes;   // queries of a backward tile
  int64_t back_keys;    // keys of a backward block at most
  int64_t decode_keys;  // keys of a chunk of `decode`
};

template <class T, class S = T>
struct AttentionKernels {
  using Problem = AttentionProblem<T, S>;
  using Output = AttentionOutput<T, S>;
  using Gradients = AttentionGradients<T, S>;

  AttentionSizes sizes;
  size_t (*forward_scratch)(const Problem& p);  // in elements
  size_t (*backward_scratch)(const Problem& p);
  // Rows [begin, end) of head (b, h); end - begin <= max_rows, begin a multiple of `lanes`.
  void (*forward)(const Problem& p, const Output& y, int64_t b, int64_t h, int64_t begin, int64_t end, T* scratch);
  // Key blocks group, group + groups, ... of head (b, kv_head), and all queries that see them.
  void (*backward)(const Problem& p, const Gradients& d, int64_t b, int64_t kv_head, int64_t group, T* scratch);
  // Numbers that a tile takes in partial_dq.
  int64_t (*tile_size)(const Problem& p);
  // dq of one tile of queries from partial_dq.
  void (*combine)(const Problem& p, const Gradients& d, int64_t b, int64_t h, int64_t tile);
  // Forward for one query, without dropout and lse, in two steps: chunk by chunk for the heads that share (b, kv_head)
  // into partial [heads that share, partial_size], and then for each head from its chunks, `stride` apart.
  int64_t (*partial_size)(const Problem& p);
  void (*decode)(const Problem& p, int64_t b, int64_t kv_head, int64_t chunk, T* partial);
  void (*join)(const Problem& p, const Output& y, int64_t b, int64_t h, int64_t chunks, const T* partial,
               int64_t stride);
};

using Bf16AttentionKernels = AttentionKernels<float, uint16_t>;
struct AttentionTable {
  AttentionKernels<float> f32;
  AttentionKernels<double> f64;
  Bf16AttentionKernels bf16;
};
const AttentionTable& attention_table();          // of the level that runs
const Bf16AttentionKernels& attention_bf16();     // its bf16, by the machine's instruction where the level has it

// Those of the level that runs.
template <class T, class S>
const AttentionKernels<T, S>& attention_kernels() {
  if constexpr (sizeof(S) == 2)
    return attention_bf16();
  else
    return of<T>(attention_table());
}

}  // namespace heed::kernels

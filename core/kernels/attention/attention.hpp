// Softmax attention in blocks, forward and backward, without the T x S matrix. The methods are the online softmax of
// Milakov and Gimelshein (2018) and the blocking of FlashAttention-2 (Dao, 2023). The lanes of a vector are queries, so
// that maxima, sums and the rescaling of a row are plain vector operations.
//
// The formulas for one head, with j running over the keys that query i may attend to:
//
//   s_ij = scale * q_i . k_j + bias_ij     L_i = log2 sum_j 2^(s_ij log2(e))     p_ij = 2^(s_ij log2(e) - L_i)
//   o_i  = sum_j m_ij p_ij v_j             m_ij = 0 or 1 / (1 - dropout); 1 without dropout
//
//   dv_j = sum_i m_ij p_ij do_i            delta_i = do_i . o_i
//   ds_ij = p_ij (m_ij do_i . v_j - delta_i)
//   dq_i = scale * sum_j ds_ij k_j         dk_j = scale * sum_i ds_ij q_i        dbias_ij = ds_ij
//
// With a function f of scores (flex_attention) and a sink z_h, which is a logit in the denominator only:
//
//   x_ij = scale * q_i . k_j + bias_ij     s_ij = f(x_ij)     L_i = log2(2^(z_h log2(e)) + sum_j 2^(s_ij log2(e)))
//   dx_ij = f'(x_ij) ds_ij                 takes the place of ds_ij in the last row above
//   dz_h = -sum_i 2^(z_h log2(e) - L_i) delta_i
//
// Memory: rows of q, k and v are read in place, through their strides, and copied block by block into scratch that
// stays in cache: keys as rows [keys, width], queries as columns [width, lanes]. "Whole vectors" means that a row is
// padded with zeros to a multiple of the vector's width.
//
// bfloat16 q, k, v and out: scores, softmax, sums and gradients are float32. The operands of all products are pairs of
// bf16 (simd/pairs.hpp): p and ds are rounded, as in FlashAttention. Where one weight is near 1, do . v - delta
// cancels, and with `o` in 8 bits only the error of that rounding would remain. So forward stores 8 more bits per
// number of `o` (`rest`), and delta uses `do` as the products do, rounded.
#pragma once
#include "../../kernel_interface.hpp"
#include "../dispatch/dispatch.hpp"
#include "head_rows.hpp"

namespace heed::kernels {

// A tensor that is broadcast to [batch, head, query, key], with strides of 0 along repeated axes. Null data: absent.
template <class T>
struct ScoreGrid {
  T* data;
  int64_t batch, head, query, key;
};

// The additions of flex_attention. All null: none.
template <class T>
struct ScoreRules {
  ScoreFunction<T> f;              // null `apply`: f(x) = x
  const ScoreContext<T>* context;  // of f
  const T* sinks;                  // [heads]: z; or null
  // kind of each block of kBlockQueries by kBlockKeys, by the strides below and 1; or null
  const BlockKind* blocks;
  int64_t block_batch, block_head, block_query;
  MaskFunction<T> mask;       // for blocks of kind `part`
  const void* mask_function;  // the first argument of `mask`
  const int32_t* positions;   // [batch]: position of the first query among the keys; null: keys - queries
};

// T: type of scores, sums and gradients. S: type of q, k, v and out in memory: T, or uint16_t for bf16.
template <class T, class S = T>
struct AttentionProblem {
  int64_t batch, heads, kv_heads, queries, keys, width, value_width;
  T scale;
  bool causal;
  HeadRows<const S> q, k, v;
  const int32_t* lengths;   // [batch]: keys from this one on are padding; or null
  const uint8_t* key_mask;  // [batch, keys]: 0 if a key is masked; or null
  // [batch, queries]: the first key of each query's document; earlier keys are masked. Ascending in each row. Only with
  // `causal` and as many queries as keys. Null: none.
  const int32_t* documents;
  ScoreGrid<const uint8_t> mask;
  ScoreGrid<const T> bias;
  // Dropout: weight (b, h, i, j) is dropped if word j % 4 of philox(seed, position + ((b * heads + h) * queries + i) *
  // ceil(keys / 4) + j / 4, stream) is below `drop_below`. The others are multiplied by `keep`. 0: no dropout.
  uint64_t seed, stream, position;
  uint32_t drop_below;
  T keep;
  ScoreRules<T> rules;
};

template <class T, class S = T>
struct AttentionOutput {
  HeadRows<S> out;
  T* lse;                  // [batch, heads, queries]: L, or +inf for a row without a key; or null
  HeadRows<uint8_t> rest;  // for a bf16 out with lse: 8 more bits per number, rows of rest_width() bytes
};
// Bytes per row of AttentionOutput::rest: whole vectors on every level.
constexpr int64_t rest_width(int64_t value_width) { return (value_width + 15) / 16 * 16; }

// Inputs and outputs of backward, for every attention with a score per pair of query and key.
template <class T, class S = T>
struct PairGradients {
  HeadRows<const S> out;
  HeadRows<const T> dout;
  const T* lse;            // [batch, heads, queries]: L, or +inf for a row without a key
  HeadRows<T> dq, dk, dv;  // null data: not needed
  bool add_dq, add_dk, add_dv;
};

template <class T, class S = T>
struct AttentionGradients : PairGradients<T, S> {
  HeadRows<const uint8_t> rest;  // of out, if it is bf16
  T* dbias;       // [batch, heads, queries, keys], zeros before; or null
  // [groups, batch, heads, query tiles, tile_size], zeros before if there are documents or a mask of blocks; null if
  // there is one block of keys
  T* partial_dq;
  int64_t groups, block_keys;      // keys per block: a multiple of 64, at most back_keys
  const ScoreContext<T>* context;  // of this task, with its own sums; null: no gradient of a parameter is needed
};

// Sizes by which the driver divides the work.
struct AttentionSizes {
  int64_t lanes;        // queries per tile
  int64_t max_rows;     // max queries per forward block
  int64_t back_lanes;   // queries per backward tile
  int64_t back_keys;    // max keys per backward block
  int64_t decode_keys;  // keys per chunk of `decode`
};

template <class T, class S = T>
struct AttentionKernels {
  using Problem = AttentionProblem<T, S>;
  using Output = AttentionOutput<T, S>;
  using Gradients = AttentionGradients<T, S>;

  AttentionSizes sizes;
  size_t (*forward_scratch)(const Problem& p);  // in elements
  size_t (*backward_scratch)(const Problem& p);
  // Rows [begin, end) of head (b, h); end - begin <= max_rows, begin is a multiple of `lanes`.
  void (*forward)(const Problem& p, const Output& y, int64_t b, int64_t h, int64_t begin, int64_t end, T* scratch);
  // Key blocks group, group + groups, ... of head (b, kv_head), and all queries that see them.
  void (*backward)(const Problem& p, const Gradients& d, int64_t b, int64_t kv_head, int64_t group, T* scratch);
  // Elements per tile in partial_dq.
  int64_t (*tile_size)(const Problem& p);
  // Computes dq of one tile of queries from partial_dq.
  void (*combine)(const Problem& p, const Gradients& d, int64_t b, int64_t h, int64_t tile);
  // Forward for one query per head, without dropout and lse, in two steps. `decode` processes a chunk of keys for the
  // heads that share (b, kv_head), into partial [shared heads, partial_size]. `join` computes the result of one head
  // from its chunks, which are `stride` elements apart.
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
const AttentionTable& attention_table();  // for the level in use
// bf16 for the level in use, by the machine's instruction if the level has it
const Bf16AttentionKernels& attention_bf16();

// The kernels for the level in use.
template <class T, class S>
const AttentionKernels<T, S>& attention_kernels() {
  if constexpr (sizeof(S) == 2)
    return attention_bf16();
  else
    return of<T>(attention_table());
}

}  // namespace heed::kernels

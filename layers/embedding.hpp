// Embeddings of tokens and positions: tables of vectors, looked up by index.
//
// Example:
//
//   Rng rng(1);
//   const Embedding tokens(100, 16, rng);
//   const LearnedPositions positions(64, 16, rng);
//   const Tensor x = tokens(Tensor::from<std::int32_t>({5, 9, 2}, {1, 3})) + positions(3);  // [1, 3, 16]
#pragma once
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/embedding.hpp>
#include <heed/layers/linear.hpp>

namespace heed {

// A table of vectors. Initial values are normal(0, 1). Throws Error for sizes below 1 and a padding index out of range.
struct Embedding {
  Parameter weight;                  // [count, width]
  std::optional<Index> padding_idx;  // a row that is initially 0 and gets no gradient; negative: from the end

  // A table of `count` vectors of `width` numbers. `padding`: see padding_idx.
  Embedding(Exactly<Index> count, Exactly<Index> width, Rng& rng, std::optional<Index> padding = {})
      : weight(Tensor::empty({count, width})), padding_idx(padding) {
    require(count > 0 && width > 0, "Embedding: count is ", count, " and width is ", width, "; both must be 1 or more");
    require(!padding || (*padding >= -count && *padding < count), "Embedding: padding_idx is ", padding.value_or(0),
            " and count is ", count, "; padding_idx must be in [", -count, ", ", count, ")");
    init::normal_(weight, rng);
    if (padding) weight[*padding].zero_();
  }

  // int32 [...] -> [..., width]
  Tensor operator()(In indices) const { return embedding(indices, weight, padding_idx); }

  void members(auto&& visit) { visit.table("weight", weight); }  // a table: see MemberVisitor::table
};

// ---- Positions ----

// Learned and sinusoidal positions are vectors added to the embeddings. Rotary positions (rope) act on queries and keys
// inside MultiHeadAttention; relative positions act on its scores.

// How a model represents positions.
enum class PositionKind { none, learned, sinusoidal, rope, relative };

// PE(pos, 2i) = sin(pos / 10000^(2i/width)), PE(pos, 2i+1) = cos of the same angle (Vaswani et al. 2017, section 3.5).
Tensor sinusoidal_positions(Index count, Index width, DType dtype = DType::float32);  // [count, width]

namespace detail {
// Throws Error unless positions offset to offset + length - 1 are in [0, count).
void check_positions(const char* layer, Index offset, Index length, Index count, const Where& where);
}  // namespace detail

// A learned vector per position. Initial values are normal(0, 0.02).
struct LearnedPositions {
  Parameter weight;  // [context, width]

  // A vector of `width` numbers for each of `context` positions.
  LearnedPositions(Exactly<Index> context, Exactly<Index> width, Rng& rng) : weight(Tensor::empty({context, width})) {
    init::normal_(weight, rng, 0, 0.02);
  }

  // [T, width] for positions offset, offset + 1, ... Throws Error for positions outside the context.
  Tensor operator()(Index length, Index offset = 0, Where where = Where::current()) const {
    detail::check_positions("LearnedPositions", offset, length, weight.dim(0), where);
    const Tensor rows = weight.slice(0, offset, offset + length);
    const bool stored = rows.dtype() == DType::bfloat16 || is_quantized(rows.dtype());
    return stored ? rows.to(DType::float32) : rows;
  }
  Tensor operator()(In positions) const { return embedding(positions, weight); }  // int32 [B, T] -> [B, T, width]

  void members(auto&& visit) { visit.table("weight", weight); }  // a table: see MemberVisitor::table
};

// A fixed vector per position: sinusoidal_positions().
struct SinusoidalPositions {
  Tensor table;  // [context, width], float64 for the precision of float64 models

  // The vectors of positions 0 to context - 1.
  SinusoidalPositions(Exactly<Index> context, Exactly<Index> width)
      : table(sinusoidal_positions(context, width, DType::float64)) {}

  // [T, width] for positions offset, offset + 1, ... Throws Error for positions outside the context.
  Tensor operator()(Index length, Index offset = 0, DType dtype = DType::float32,
                    Where where = Where::current()) const {
    detail::check_positions("SinusoidalPositions", offset, length, table.dim(0), where);
    return table.slice(0, offset, offset + length).to(dtype);
  }
  // int32 [B, T] -> [B, T, width]
  Tensor operator()(In positions, DType dtype) const { return embedding(positions, table).to(dtype); }

  void members(auto&&) {}  // none: the vectors are neither trained nor saved
};

// bias_hij = table_h[clip + min(max(j - P, -clip), clip)] for query i at position P = i + S - T: [H, T, S] from a table
// [H, 2 clip + 1]. dtable_h[c] = sum of dbias_hij over the pairs with entry c. Throws Error for a table with an even
// number of columns.
Tensor relative_position_bias(In table, Index queries, Index keys);

// Relative positions as in T5 (Raffel et al., "Exploring the limits of transfer learning", 2020): a learned number per
// head and distance is added to the scores. Unlike T5's buckets of distances, each distance up to the clip has its own
// entry, as in Shaw, Uszkoreit, Vaswani, "Self-attention with relative position representations", 2018, whose vectors
// per distance are ShawAttention (layers/attention/relative.hpp).
struct RelativePositionBias {
  Parameter weight;  // [heads, 2 clip + 1], normal(0, 0.02)

  // Throws Error unless heads >= 1 and 1 <= clip < 2^31.
  RelativePositionBias(Exactly<Index> heads, Exactly<Index> clip, Rng& rng);
  Tensor operator()(Index queries, Index keys, Where where = Where::current()) const {  // [heads, queries, keys]
    return relative_position_bias({weight, where}, queries, keys);
  }
  // The bias of rows that have seen `seen` (int32 [B]) positions before: [B, heads, queries, max(seen) + queries].
  Tensor of_rows(Index queries, const Tensor& seen) const;
  void members(auto&& visit) { visit.table("weight", weight); }
};

}  // namespace heed

// Longformer: windows with a dilation per head, and global positions with projections of their own.
//
// Example:
//
//   Rng rng(1);
//   LongformerAttention longformer({.window = 64, .dilations = {1, 2}, .globals = {0}, .size = 8});
//   const MultiHeadAttention layer({.width = 16, .heads = 2}, rng, std::move(longformer));
//   const Tensor y = layer(rng.normal({1, 500, 16}));
#pragma once
#include <algorithm>
#include <heed/layers/attention/mechanism.hpp>
#include <span>
#include <vector>

namespace heed {

// Options of LongformerAttention.
struct LongformerOptions {
  Index window = 0;                    // w: keys per query, a step of the head's dilation apart
  std::vector<Index> dilations = {1};  // one for all heads, or one per head
  std::vector<Index> globals = {0};    // positions that see all positions and are seen by all
  bool own_projections = true;         // the queries at global positions have queries, keys and values of their own
  // Of a head's queries and keys, and of its values; 0: size. Required for projections of their own.
  Index size = 0, value_size = 0;
};

// Attention of Longformer (Beltagy, Peters, Cohan, "Longformer: the long-document Transformer", 2020), as a mechanism.
// Query i of head h, with dilation d_h, at position P = i + S - T:
//
//   P not global   softmax over q_i . k_j / sqrt(D) of the values v_j, j in the window of P in steps of d_h, or global
//   P global       softmax over q'_i . k'_j / sqrt(D) of the values v'_j, all j
//
// A causal call adds j <= P. q', k' and v' are the inputs global_query, global_key and global_value, which the layer
// computes from x. They have no rotary positions. Without own projections they are q, k and v. Window: as that of
// WindowAttention (sparse.hpp). O(n (w + globals)) for a few global positions. With own projections there are no
// weights with which apply() sums the given values alone.
//
// Decoding keeps all keys and values, because a later global position sees them.
class LongformerAttention {
 public:
  // Throws Error for a window, a dilation or a size below 1, and for negative global positions.
  explicit LongformerAttention(const LongformerOptions& options);

  // The members of a mechanism: see mechanism.hpp.
  std::string name() const { return "longformer"; }
  AttentionCapabilities capabilities() const;
  std::vector<MechanismInput> inputs() const;
  double keys_per_query(Index positions, Index) const {
    return static_cast<double>(std::min(positions, options_.window + static_cast<Index>(options_.globals.size())));
  }
  Tensor apply(In q, In k, In v, const AttentionCall& call, std::span<const Tensor> inputs) const;
  AttentionState make_state() const;
  const LongformerOptions& options() const { return options_; }  // globals are sorted and without repeats
  void members(auto&&) {}

 private:
  LongformerOptions options_;
};

}  // namespace heed

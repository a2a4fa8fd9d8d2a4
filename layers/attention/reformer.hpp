// Reformer's attention: softmax attention within buckets, in chunks of positions that are sorted by bucket.
//
// Example:
//
//   Rng rng(1);
//   const MultiHeadAttention layer({.width = 16, .heads = 2}, rng, ReformerAttention({.size = 8, .chunk = 32}));
//   const Tensor y = layer(rng.normal({1, 1000, 16}));
#pragma once
#include <algorithm>
#include <heed/autograd/attention.hpp>
#include <heed/layers/attention/mechanism.hpp>
#include <optional>

namespace heed {

// Options of ReformerAttention.
struct ReformerOptions {
  Index size = 0;     // D of queries
  Index chunk = 64;   // c: positions per chunk, twice the average size of a bucket
  Index rounds = 4;   // hash functions, each with its own order of the positions
  Index buckets = 0;  // b, a power of two; 0: the first power of two from 2 n / c on, for n unmasked positions
  std::uint64_t seed = 0;            // of the rotations
  std::optional<double> scale = {};  // 1 / sqrt(D) by default
};

// LSH attention of encoders as published (Kitaev, Kaiser, Levskaya, "Reformer: the efficient Transformer", 2020,
// equations 4 to 7 and appendix A), as a mechanism. Queries and keys are shared: k_j = q_j / |q_j|, and k is not read.
//
//   bucket_r(x)  the number with the digits argmax [x R; -x R], for random rotations R of round r
//   s_r(i)       the place of i in the positions that are sorted by bucket_r and then by position
//   P_r(i)       all j other than i with bucket_r(j) = bucket_r(i) in the chunk of i and the one before:
//                s_r(i) div c - 1 <= s_r(j) div c <= s_r(i) div c; i itself only if no round has another key
//   z_r(i)       log sum over j in P_r(i) of exp(scale q_i . k_j - log N_ij), N_ij the rounds whose P_r(i) holds j
//   o_i          sum_r exp(z_r - logsumexp z) o_r, with o_r the softmax attention of round r
//
// The right side equals softmax attention to the union of all P_r(i), which sparse_attention() computes: time is
// O(n rounds c D). Digits have up to 16 values, so that hashing takes O(n rounds D log b). Each round sorts by
// counting. No gradient passes through the hash. Masked positions are in no order and in no chunk.
//
// There is no causal form: the borders of chunks depend on later positions. LshAttention has one.
class ReformerAttention {
 public:
  // Throws Error for a size, chunk or rounds below 1, and for buckets that are no power of two.
  explicit ReformerAttention(const ReformerOptions& options);
  // The members of a mechanism: see mechanism.hpp.
  std::string name() const { return "reformer"; }
  AttentionCapabilities capabilities() const;
  double keys_per_query(Index positions, Index) const {
    return static_cast<double>(std::min(positions, options_.rounds * options_.chunk));
  }
  Tensor apply(In q, In k, In v, const AttentionCall& call) const;
  // The union of all P_r(i), with lists per head.
  KeyLists lists(In q, const AttentionCall& call) const;
  // b for a sequence of this many unmasked positions; and its default for chunks of this size.
  Index buckets(Index positions) const;
  static Index default_buckets(Index positions, Index chunk);
  const ReformerOptions& options() const { return options_; }
  const Tensor& rotations() const { return rotations_; }
  void members(auto&& visit) { visit.buffer("rotations", rotations_); }

 private:
  ReformerOptions options_;
  Tensor rotations_;  // [rounds, D, 8 per digit] float32
};

}  // namespace heed

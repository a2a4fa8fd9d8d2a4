// Attention within hash buckets, after Reformer (Kitaev, Kaiser, Levskaya, "Reformer: the efficient Transformer",
// 2020), and not its algorithm: Reformer sorts positions by bucket and cuts the order into chunks, whose borders move
// with tokens that come later. Here, strictly causal, each query looks back in its own bucket: O(n), not O(n log n),
// and what a query sees of a full bucket is the last w keys.
//
// In round r, x has the bucket argmax [x R_r; -x R_r], for random rotations R_r [D, buckets / 2]. The keys of query i,
// at position P = i + S - T, in round r are the last w positions j < P of its bucket (not causal: the nearest w but P
// itself; of two equally near the earlier). Those that masks forbid are not counted. P itself is seen only where no
// round finds a key. With z_r = log sum_j exp(s_ij - log N_ij), N_ij the rounds that hold j, and o_r the softmax of
// round r,
//
//   o_i = sum_r exp(z_r - logsumexp z) o_r = softmax attention over the union of the rounds' keys,
//
// which is what is computed: O(n rounds w D). No gradient goes through the hash.
#pragma once
#include <algorithm>
#include <heed/autograd/sparse_attention.hpp>
#include <heed/layers/attention/mechanism.hpp>
#include <optional>

namespace heed {

struct LshAttentionOptions {
  Index size = 0;      // D of the queries and keys
  Index buckets = 32;  // even; about the usual length / window
  Index rounds = 4;
  Index window = 32;                 // w
  bool shared = false;               // Reformer's shared queries and keys: the keys are q / |q|, and k is not looked at
  std::uint64_t seed = 0;            // of the rotations
  std::optional<double> scale = {};  // 1 / sqrt(D) unless given
};

class LshAttention {
 public:
  explicit LshAttention(const LshAttentionOptions& options);  // Error unless sizes are 1 or more and buckets even
  std::string name() const { return "lsh"; }
  AttentionCapabilities capabilities() const {
    AttentionCapabilities can = AttentionCapabilities::of_pairs();
    can.discrete = true;
    if (!options_.shared) return can;
    can.cross = can.grouped = false;
    can.why = "queries and keys are shared";
    return can;
  }
  double keys_per_query(Index positions, Index) const {
    return static_cast<double>(std::min(positions, options_.rounds * options_.window));
  }
  Tensor apply(In q, In k, In v, const AttentionCall& call) const;
  AttentionState make_state() const;
  // The union of the rounds' keys, lists of each head.
  KeyLists lists(In q, In k, const AttentionCall& call) const;
  // Buckets of x [B, H, N, D]: int32 [B, H, rounds, N].
  Tensor hash(In x) const;
  const LshAttentionOptions& options() const { return options_; }
  const Tensor& rotations() const { return rotations_; }
  Tensor keys_of(In q, In k) const;  // k, or q / |q| where they are shared, and 0 for 0
  void members(auto&& visit) { visit.buffer("rotations", rotations_); }

 private:
  LshAttentionOptions options_;
  Tensor rotations_;  // [rounds, D, buckets / 2] float32
};

}  // namespace heed

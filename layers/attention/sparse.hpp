// Softmax attention in which each query chooses few keys: by place, by score, and by hashing.
//
// Example:
//
//   Rng rng(1);
//   const MultiHeadAttention near({.width = 16, .heads = 2}, rng, WindowAttention({.window = 64, .globals = {0}}));
//   const MultiHeadAttention best({.width = 16, .heads = 2}, rng, TopKAttention(8));
#pragma once
#include <algorithm>
#include <heed/autograd/attention.hpp>
#include <heed/layers/attention/mechanism.hpp>
#include <optional>
#include <vector>

namespace heed {

// ---- By place ----

// Attention on a fixed pattern: softmax attention in which query i, at position P = i + S - T, sees only some keys.
// Time and memory grow with the number of pairs. The patterns, with j <= P besides where causal:
//
//   window    P - w d < j <= P in steps of d, or, not causal, |P - j| <= floor(w / 2) d in steps of d; and all pairs
//             of which j or P is a global position: O(n (w + globals))
//   strided   |P - j| < l or (P - j) mod l = 0: O(n (l + n / l)), which is O(n sqrt(n)) for l = sqrt(n)
//   fixed     floor(j / l) = floor(P / l) or j mod l >= l - c: O(n (l + c n / l))
//
// Strided and fixed: Child, Gray, Radford, Sutskever, "Generating long sequences with sparse Transformers", 2019, where
// they are causal. Window, dilation and global positions: Beltagy, Peters, Cohan, "Longformer: the long-document
// Transformer", 2020; global positions here use the same projections as the others.

struct WindowAttentionOptions {
  Index window = 0;                  // w
  Index dilation = 1;                // d
  std::vector<Index> globals = {};   // positions that see all, and that all see
  std::optional<double> scale = {};  // 1 / sqrt(D) unless given
};

struct StridedAttentionOptions {
  Index stride = 0;  // l; the square root of the usual length makes the fewest pairs
  std::optional<double> scale = {};
};

struct FixedAttentionOptions {
  Index block = 0;    // l
  Index summary = 1;  // c: the last positions of each block, which all later ones see
  std::optional<double> scale = {};
};

namespace detail {

// What the patterns share. A Pattern has see(): appends what position p sees of [0, keys), in ascending order.
template <class Pattern, class PatternOptions>
class ByPlace {
 public:
  AttentionCapabilities capabilities() const { return AttentionCapabilities::of_places(); }
  Tensor apply(In q, In k, In v, const AttentionCall& call) const;
  AttentionState make_state() const;
  KeyLists lists(Index queries, Index keys, bool causal) const;
  const PatternOptions& options() const { return options_; }
  void members(auto&&) {}

 protected:
  explicit ByPlace(const PatternOptions& options) : options_(options) {}
  PatternOptions options_;

 private:
  const Pattern& pattern() const { return static_cast<const Pattern&>(*this); }
};

}  // namespace detail

// A mechanism each. They throw Error for sizes below 1, negative positions and a summary larger than its block.
// WindowAttention::options() has the globals sorted, each once.
class WindowAttention : public detail::ByPlace<WindowAttention, WindowAttentionOptions> {
 public:
  explicit WindowAttention(const WindowAttentionOptions& options);
  std::string name() const { return "window"; }
  double keys_per_query(Index positions, Index) const {
    return static_cast<double>(std::min(positions, options_.window + static_cast<Index>(options_.globals.size())));
  }
  AttentionState make_state() const;  // keeps no more than the window
  void see(Index p, Index keys, bool causal, std::vector<std::int32_t>& seen) const;
};

class StridedAttention : public detail::ByPlace<StridedAttention, StridedAttentionOptions> {
 public:
  explicit StridedAttention(const StridedAttentionOptions& options);
  std::string name() const { return "strided"; }
  double keys_per_query(Index positions, Index) const {
    return static_cast<double>(std::min(positions, options_.stride + positions / options_.stride));
  }
  void see(Index p, Index keys, bool causal, std::vector<std::int32_t>& seen) const;
};

class FixedAttention : public detail::ByPlace<FixedAttention, FixedAttentionOptions> {
 public:
  explicit FixedAttention(const FixedAttentionOptions& options);
  std::string name() const { return "fixed"; }
  double keys_per_query(Index positions, Index) const {
    return static_cast<double>(std::min(positions, options_.block + options_.summary * (positions / options_.block)));
  }
  void see(Index p, Index keys, bool causal, std::vector<std::int32_t>& seen) const;
};

// ---- By score ----

// Softmax attention over the k keys of largest score (Zhao et al., "Explicit sparse Transformer: concentrated attention
// through explicit selection", 2019), for each query on its own:
//
//   s_ij = scale * q_i . k_j + bias_ij     o_i = sum over the chosen j of softmax(s_i)_j v_j
//
// Chosen are min(k, allowed) keys; of equal scores the lower j. The choice is a constant in the gradient. Scores of all
// pairs are computed, O(n^2 D), in blocks of queries, so that memory is O(n k).

class TopKAttention {
 public:
  // `count` is k, 1 or more; else an Error. The scale is 1 / sqrt(D) unless given.
  explicit TopKAttention(Exactly<Index> count, std::optional<double> scale = {});
  std::string name() const { return "top-k"; }
  AttentionCapabilities capabilities() const {
    AttentionCapabilities can = AttentionCapabilities::of_pairs();
    can.discrete = true;
    return can;
  }
  Tensor apply(In q, In k, In v, const AttentionCall& call) const;
  AttentionState make_state() const;
  // The chosen keys, lists of each head.
  KeyLists lists(In q, In k, const AttentionCall& call) const;
  void members(auto&&) {}

 private:
  Index count_;
  std::optional<double> scale_;
};

// ---- By hashing ----

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
    AttentionCapabilities can = AttentionCapabilities::of_places();
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

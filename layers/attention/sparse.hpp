// Softmax attention to a few keys per query, chosen by position, by score or by hashing.
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

// Attention with a fixed pattern, as mechanisms: softmax attention in which query i, at position P = i + S - T, sees
// some of the keys. Time and memory grow with the number of pairs. The patterns, to which a causal call adds j <= P:
//
//   window    P - w d < j <= P in steps of d if causal, else |P - j| <= floor(w / 2) d in steps of d; and all pairs
//             in which j or P is a global position: O(n (w + globals))
//   strided   |P - j| < l or (P - j) mod l = 0: O(n (l + n / l)), which is O(n sqrt(n)) for l = sqrt(n)
//   fixed     floor(j / l) = floor(P / l) or j mod l >= l - c: O(n (l + c n / l))
//
// Strided and fixed: Child, Gray, Radford, Sutskever, "Generating long sequences with sparse Transformers", 2019, for
// causal attention. Window, dilation and global positions: Beltagy, Peters, Cohan, "Longformer: the long-document
// Transformer", 2020. Unlike Longformer's, global positions use the same projections as other positions; the mechanism
// of longformer.hpp does not.

// Options of WindowAttention.
struct WindowAttentionOptions {
  Index window = 0;                  // w
  Index dilation = 1;                // d
  std::vector<Index> globals = {};   // positions that see all positions and are seen by all
  std::optional<double> scale = {};  // 1 / sqrt(D) by default
};

// Options of StridedAttention.
struct StridedAttentionOptions {
  Index stride = 0;  // l; the square root of the typical length gives the fewest pairs
  std::optional<double> scale = {};  // 1 / sqrt(D) by default
};

// Options of FixedAttention.
struct FixedAttentionOptions {
  Index block = 0;    // l
  Index summary = 1;  // c: number of last positions per block that other blocks see
  std::optional<double> scale = {};  // 1 / sqrt(D) by default
};

namespace detail {

// Base class of the patterns. Pattern::see() appends the keys in [0, keys) that position p sees, in ascending order.
// Pattern::by_distance() tells whether these keys follow from distances alone, so that rows may hold several documents.
template <class Pattern, class PatternOptions>
class ByPlace {
 public:
  AttentionCapabilities capabilities() const {
    return AttentionCapabilities::of_places({.documents = pattern().by_distance()});
  }
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

// The mechanisms. Constructors throw Error for sizes below 1, negative global positions, and a summary larger than its
// block. WindowAttention::options() has the globals sorted and without repeats.
class WindowAttention : public detail::ByPlace<WindowAttention, WindowAttentionOptions> {
 public:
  explicit WindowAttention(const WindowAttentionOptions& options);  // errors as above
  // The members of a mechanism: see mechanism.hpp. The others are in the base class.
  std::string name() const { return "window"; }
  double keys_per_query(Index positions, Index) const {
    return static_cast<double>(std::min(positions, options_.window + static_cast<Index>(options_.globals.size())));
  }
  AttentionState make_state() const;  // stores the window and the global positions only
  void see(Index p, Index keys, bool causal, std::vector<std::int32_t>& seen) const;  // see detail::ByPlace
  bool by_distance() const { return options_.globals.empty(); }                       // see detail::ByPlace
};

// The strided pattern.
class StridedAttention : public detail::ByPlace<StridedAttention, StridedAttentionOptions> {
 public:
  explicit StridedAttention(const StridedAttentionOptions& options);  // throws Error for a stride below 1
  // The members of a mechanism: see mechanism.hpp. The others are in the base class.
  std::string name() const { return "strided"; }
  double keys_per_query(Index positions, Index) const {
    return static_cast<double>(std::min(positions, options_.stride + positions / options_.stride));
  }
  void see(Index p, Index keys, bool causal, std::vector<std::int32_t>& seen) const;  // see detail::ByPlace
  bool by_distance() const { return true; }                                           // see detail::ByPlace
};

// The fixed pattern.
class FixedAttention : public detail::ByPlace<FixedAttention, FixedAttentionOptions> {
 public:
  explicit FixedAttention(const FixedAttentionOptions& options);  // throws Error unless 1 <= summary <= block
  // The members of a mechanism: see mechanism.hpp. The others are in the base class.
  std::string name() const { return "fixed"; }
  double keys_per_query(Index positions, Index) const {
    return static_cast<double>(std::min(positions, options_.block + options_.summary * (positions / options_.block)));
  }
  void see(Index p, Index keys, bool causal, std::vector<std::int32_t>& seen) const;  // see detail::ByPlace
  bool by_distance() const { return false; }                                          // see detail::ByPlace
};

// ---- By score ----

// Softmax attention over the k keys with the largest scores (Zhao et al., "Explicit sparse Transformer: concentrated
// attention through explicit selection", 2019), as a mechanism. Per query:
//
//   s_ij = scale * q_i . k_j + bias_ij     o_i = sum over the chosen j of softmax(s_i)_j v_j
//
// min(k, allowed) keys are chosen; of equal scores the lower j. The choice is constant in the gradient. Scores of all
// pairs are computed in blocks of queries: O(n^2 D) time, O(n k) memory.
class TopKAttention {
 public:
  // `count` is k. Throws Error if it is below 1. The scale is 1 / sqrt(D) by default.
  explicit TopKAttention(Exactly<Index> count, std::optional<double> scale = {});
  // The members of a mechanism: see mechanism.hpp.
  std::string name() const { return "top-k"; }
  AttentionCapabilities capabilities() const {
    return AttentionCapabilities::of_pairs({.documents = true, .discrete = true});
  }
  Tensor apply(In q, In k, In v, const AttentionCall& call) const;
  AttentionState make_state() const { return KeyValueState(*this); }
  // The chosen keys, with lists per head.
  KeyLists lists(In q, In k, const AttentionCall& call) const;
  void members(auto&&) {}

 private:
  Index count_;
  std::optional<double> scale_;
};

// ---- By hashing ----

// Attention within hash buckets, as a mechanism, after Reformer (Kitaev, Kaiser, Levskaya, "Reformer: the efficient
// Transformer", 2020), but with another algorithm. Reformer sorts positions by bucket and cuts the order into chunks,
// whose borders depend on later tokens. Here attention is strictly causal: each query looks back in its own bucket, and
// of a full bucket it sees the last w keys. This takes O(n) instead of O(n log n) time.
//
// In round r, x has the bucket argmax [x R_r; -x R_r], for random rotations R_r [D, buckets / 2]. Query i is at
// position P = i + S - T. In round r it sees the last w positions j < P of its bucket (not causal: the w nearest
// positions other than P, of two equally near the earlier one). Masked positions do not count. P itself is seen only if
// no round finds a key. Let z_r = log sum_j exp(s_ij - log N_ij), with N_ij the number of rounds that contain j, and
// o_r the softmax attention of round r. The result is
//
//   o_i = sum_r exp(z_r - logsumexp z) o_r = softmax attention over the union of the rounds' keys,
//
// computed by the right side in O(n rounds w D). No gradient passes through the hash.

// Options of LshAttention.
struct LshAttentionOptions {
  Index size = 0;      // D of queries and keys
  Index buckets = 32;  // per round; even; about the typical length / window
  Index rounds = 4;    // hash functions, each with its own buckets
  Index window = 32;                 // w
  bool shared = false;               // Reformer's shared queries and keys: keys are q / |q|, and k is not read
  std::uint64_t seed = 0;            // of the rotations
  std::optional<double> scale = {};  // 1 / sqrt(D) by default
};

// Attention within hash buckets, as above.
class LshAttention {
 public:
  explicit LshAttention(const LshAttentionOptions& options);  // throws Error for sizes below 1 and odd buckets
  // The members of a mechanism: see mechanism.hpp.
  std::string name() const { return "lsh"; }
  AttentionCapabilities capabilities() const {
    AttentionCapabilities can = AttentionCapabilities::of_places({.discrete = true});
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
  // The union of the rounds' keys, with lists per head.
  KeyLists lists(In q, In k, const AttentionCall& call) const;
  // Buckets of x [B, H, N, D]: int32 [B, H, rounds, N].
  Tensor hash(In x) const;
  const LshAttentionOptions& options() const { return options_; }
  const Tensor& rotations() const { return rotations_; }
  Tensor keys_of(In q, In k) const;  // k; or q / |q| if shared, 0 for q = 0
  void members(auto&& visit) { visit.buffer("rotations", rotations_); }

 private:
  LshAttentionOptions options_;
  Tensor rotations_;  // [rounds, D, buckets / 2] float32
};

}  // namespace heed

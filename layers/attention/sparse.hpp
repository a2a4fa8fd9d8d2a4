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
#pragma once
#include <algorithm>
#include <heed/autograd/sparse_attention.hpp>
#include <heed/layers/attention/mechanism.hpp>
#include <optional>
#include <vector>

namespace heed {

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

// A mechanism each. They throw Error for sizes below 1, negative positions and a summary larger than its block.
class WindowAttention {
 public:
  explicit WindowAttention(const WindowAttentionOptions& options);
  std::string name() const { return "window"; }
  AttentionCapabilities capabilities() const { return AttentionCapabilities::of_pairs(); }
  double keys_per_query(Index positions, Index) const {
    return static_cast<double>(std::min(positions, options_.window + static_cast<Index>(options_.globals.size())));
  }
  Tensor apply(In q, In k, In v, const AttentionCall& call) const;
  AttentionState make_state() const;
  KeyLists lists(Index queries, Index keys, bool causal) const;
  // Appends what position p sees of [0, keys), in ascending order.
  void see(Index p, Index keys, bool causal, std::vector<std::int32_t>& seen) const;
  const WindowAttentionOptions& options() const { return options_; }  // globals sorted, each once
  void members(auto&&) {}

 private:
  WindowAttentionOptions options_;
};

class StridedAttention {
 public:
  explicit StridedAttention(const StridedAttentionOptions& options);
  std::string name() const { return "strided"; }
  AttentionCapabilities capabilities() const { return AttentionCapabilities::of_pairs(); }
  double keys_per_query(Index positions, Index) const {
    return static_cast<double>(std::min(positions, options_.stride + positions / options_.stride));
  }
  Tensor apply(In q, In k, In v, const AttentionCall& call) const;
  AttentionState make_state() const;
  KeyLists lists(Index queries, Index keys, bool causal) const;
  void see(Index p, Index keys, bool causal, std::vector<std::int32_t>& seen) const;  // as WindowAttention::see()
  void members(auto&&) {}

 private:
  StridedAttentionOptions options_;
};

class FixedAttention {
 public:
  explicit FixedAttention(const FixedAttentionOptions& options);
  std::string name() const { return "fixed"; }
  AttentionCapabilities capabilities() const { return AttentionCapabilities::of_pairs(); }
  double keys_per_query(Index positions, Index) const {
    return static_cast<double>(std::min(positions, options_.block + options_.summary * (positions / options_.block)));
  }
  Tensor apply(In q, In k, In v, const AttentionCall& call) const;
  AttentionState make_state() const;
  KeyLists lists(Index queries, Index keys, bool causal) const;
  void see(Index p, Index keys, bool causal, std::vector<std::int32_t>& seen) const;  // as WindowAttention::see()
  void members(auto&&) {}

 private:
  FixedAttentionOptions options_;
};

}  // namespace heed

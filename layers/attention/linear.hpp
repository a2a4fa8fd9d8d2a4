// Attention in linear time: feature maps, efficient attention, Taylor attention, random features of the softmax, and
// projected keys.
//
// Example:
//
//   Rng rng(1);
//   const MultiHeadAttention elu({.width = 16, .heads = 2}, rng, LinearAttention());
//   const MultiHeadAttention relu({.width = 16, .heads = 2}, rng, LinearAttention{{.feature_map = FeatureMap::relu}});
//   const Tensor y = elu(rng.normal({1, 1000, 16}), {.causal = true});
#pragma once
#include <heed/autograd/linear_attention.hpp>
#include <heed/core/random.hpp>
#include <heed/layers/attention/mechanism.hpp>
#include <heed/layers/attention/states.hpp>
#include <string_view>

namespace heed {

// ---- Feature maps ----

// Linear attention (Katharopoulos et al., "Transformers are RNNs: fast autoregressive Transformers with linear
// attention", 2020), as a mechanism: weights f(q) . f(k), normalised. Time and memory grow linearly with the length.
// The decode state has a fixed size. Formulas and derivative: core/kernels/linear_attention/linear_attention.hpp.

// The feature map named "elu", "relu", "softplus", "exp", "poly2" or "identity". Throws Error for another name.
FeatureMap feature_map(std::string_view name);

namespace detail {
// Capabilities of linear attention and related mechanisms with a causal form. `logarithms`: features are given by their
// logarithms, whose maximum is shared.
inline AttentionCapabilities linear_capabilities(bool logarithms = false) {
  return {.causal = true,
          .key_mask = true,
          .key_bias = true,
          .weights = true,
          .state = true,
          .cross = true,
          .grouped = true,
          .shared_maximum = logarithms,
          .why = "weights of single pairs are never computed"};
}
}  // namespace detail

// Linear attention (Katharopoulos et al. 2020), as a mechanism: see linear_attention().
struct LinearAttention {
  LinearFeatures features = {};  // LinearAttention{{.feature_map = FeatureMap::relu}}

  // The members of a mechanism: see mechanism.hpp. keys_per_query() is the number of features.
  std::string name() const { return "linear"; }
  AttentionCapabilities capabilities() const {
    AttentionCapabilities can = detail::linear_capabilities(features.feature_map == FeatureMap::exp);
    can.bfloat16 = features.reads_bfloat16();
    return can;
  }
  double keys_per_query(Index, Index size) const {
    return static_cast<double>(features.feature_map == FeatureMap::poly2 ? size * (size + 1) / 2 : size);
  }
  Tensor apply(In q, In k, In v, const AttentionCall& call) const { return linear_attention(q, k, v, call, features); }
  AttentionState make_state() const;
  void members(auto&&) {}
};

// ---- Efficient attention ----

// Efficient attention (Shen et al., "Efficient attention: attention with linear complexities", 2018; A2-Nets, Chen et
// al. 2018), as a mechanism: softmax_d(Q) (softmax_n(K)^T V). The softmax of queries is over their features; the
// softmax of keys is over positions. Formulas and derivative: core/kernels/linear_attention/log_attention.hpp.
struct EfficientAttention {
  // The members of a mechanism: see mechanism.hpp.
  std::string name() const { return "efficient"; }
  AttentionCapabilities capabilities() const {
    return {.key_mask = true,
            .key_bias = true,
            .weights = true,
            .cross = true,
            .grouped = true,
            .why = "the softmax of the keys is over all positions"};
  }
  double keys_per_query(Index, Index size) const { return static_cast<double>(size); }
  Tensor apply(In q, In k, In v, const AttentionCall& call) const { return efficient_attention(q, k, v, call); }
  void members(auto&&) {}
};

// Efficient attention with the softmax of keys over the positions so far. Row i is the result of EfficientAttention for
// the keys j <= i.
struct CausalEfficientAttention : EfficientAttention {
  // The members of a mechanism: see mechanism.hpp. The others are in the base class.
  AttentionCapabilities capabilities() const { return detail::linear_capabilities(true); }
  AttentionState make_state() const { return LinearAttentionState(efficient_attention_step); }
};

// ---- Taylor's series ----

// First-order Taylor attention (Li et al., "Linear attention mechanism: an efficient attention for semantic
// segmentation", 2020), as a mechanism. The exponential of the cosine is replaced by the first two terms of its series:
//
//   weight of j: 1 + (q_i / |q_i|) . (k_j / |k_j|), normalised
//
// Su Jianlin proposed the same ("Exploring linear attention", a blog post of 2020). The mechanism is linear attention
// with the features [1; x / |x|]: O(n D^2). Before normalisation weights are between 0 and 2, so attention rarely
// concentrates on a single key as softmax does.
//
// The rounding error of a cosine, 1e-7 in float32, is large relative to the weight of nearly opposite vectors, and
// relative to a row in which all keys are nearly opposite. A vector of zeros has the cosine 0 with all others, and no
// gradient: dx = (dn - n (n . dn)) / |x| for n = x / |x|.
struct TaylorAttention {
  double eps = 1e-6;  // as in LinearFeatures; avoids 0 / 0 for a single key opposite to the query

  // The members of a mechanism: see mechanism.hpp. keys_per_query() is the number of features.
  std::string name() const { return "taylor"; }
  AttentionCapabilities capabilities() const { return detail::linear_capabilities(); }
  double keys_per_query(Index, Index size) const { return static_cast<double>(size + 1); }
  Tensor apply(In q, In k, In v, const AttentionCall& call) const;
  AttentionState make_state() const;
  void members(auto&&) {}
};

// ---- Random features ----

// Random features of the softmax, FAVOR+ (Choromanski et al., "Rethinking attention with Performers", 2021), as a
// mechanism: weights with the expectation exp(q . k / sqrt(D)), in linear time.
//
//   x' = x D^(-1/4)      log f_r(x) = w_r . x' - |x'|^2 / 2      weight of j: sum_r f_r(q_i) f_r(k_j), normalised
//
// The rows w_r are orthogonal in blocks of D. The length of each row is that of a vector of D normal numbers. The
// derivative is computed through the logarithms: d x' = sum_r d(log f_r) (w_r - x'). No epsilon is added to the
// features, because that needs their common maximum, which would leak the future.

// w [features, size], which depends on (seed, layer, redraw) only. Throws Error for features or a size below 1.
Tensor random_features(Index features, Index size, std::uint64_t seed, Index layer = 0, Index redraw = 0);

// Options of FavorAttention.
struct FavorOptions {
  Index features = 0;      // 0: size * log(size), rounded, but at least `size`
  std::uint64_t seed = 1;  // of w
  Index layer = 0;         // index of the layer: each layer has its own w
};

// Attention with random features, as above.
class FavorAttention {
 public:
  // size: of a head. Throws Error if it is below 1.
  explicit FavorAttention(Exactly<Index> size, const FavorOptions& options = {});

  // The members of a mechanism: see mechanism.hpp. keys_per_query() is the number of features.
  std::string name() const { return "favor"; }
  AttentionCapabilities capabilities() const { return detail::linear_capabilities(true); }
  double keys_per_query(Index, Index) const { return static_cast<double>(w_.dim(0)); }
  Tensor apply(In q, In k, In v, const AttentionCall& call) const;
  AttentionState make_state() const;
  // Replaces the features by number `redraw` of the seed and layer in the options. From a layer:
  // mechanism.get<FavorAttention>()->redraw(n). An existing decode state keeps its own features, which are saved with
  // it.
  void redraw(Index redraw);
  const Tensor& features() const { return w_; }  // [features, size]
  void members(auto&& visit) { visit.buffer("features", w_); }

 private:
  FavorOptions options_;
  Tensor w_;  // [features, size]
};

// ---- Projected keys ----

// Linformer (Wang et al., "Linformer: self-attention with linear complexity", 2020), as a mechanism: keys and values
// are projected from positions to m rows, softmax(Q (E K)^T / sqrt(D)) (F V). Padding is set to 0 before the
// projection. The projection mixes all positions, so the mechanism has no causal form, and weights of single positions
// may be negative.
struct LinformerAttention {
  Parameter e, f;  // [rows, positions]: m x n, n >= S

  // positions: the length of the longest sequence. Throws Error for positions or rows below 1.
  LinformerAttention(Exactly<Index> positions, Exactly<Index> rows, Rng& rng);

  // The members of a mechanism: see mechanism.hpp. keys_per_query() counts the rows of both projections.
  std::string name() const { return "linformer"; }
  AttentionCapabilities capabilities() const {
    return {.key_mask = true, .cross = true, .grouped = true, .why = "its rows of keys mix all positions"};
  }
  double keys_per_query(Index, Index) const { return 2 * static_cast<double>(e.dim(0)); }
  Tensor apply(In q, In k, In v, const AttentionCall& call) const;
  void members(auto&& visit) {
    visit("e", e);
    visit("f", f);
  }
};

}  // namespace heed

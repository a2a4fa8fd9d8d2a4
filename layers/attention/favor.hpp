// Random features of the softmax, FAVOR+ (Choromanski et al., "Rethinking attention with Performers", 2021): weights
// whose expectation is exp(q . k / sqrt(D)), in linear time.
//
//   x' = x D^(-1/4)      log f_r(x) = w_r . x' - |x'|^2 / 2      weight of j: sum_r f_r(q_i) f_r(k_j), normalised
//
// The rows w_r are orthogonal in blocks of D, each as long as a vector of D normals. The derivative goes through the
// logarithms: d x' = sum_r d(log f_r) (w_r - x'). There is no epsilon on the features: their common maximum would leak
// the future.
#pragma once
#include <heed/layers/attention/linear.hpp>

namespace heed {

// w [features, size]: a function of (seed, layer, redraw) alone.
Tensor random_features(Index features, Index size, std::uint64_t seed, Index layer = 0, Index redraw = 0);

struct FavorOptions {
  Index features = 0;      // 0: size * log(size), rounded, at least `size`
  std::uint64_t seed = 1;  // of w
  Index layer = 0;
};

class FavorAttention {
 public:
  // size: of a head.
  explicit FavorAttention(Index size, const FavorOptions& options = {});

  std::string name() const { return "favor"; }
  AttentionCapabilities capabilities() const { return detail::linear_capabilities(true); }
  double keys_per_query(Index, Index) const { return static_cast<double>(w_.dim(0)); }
  Tensor apply(In q, In k, In v, const AttentionCall& call) const;
  AttentionState make_state() const;
  // New features, the number `redraw` of the seed and layer in the options. Through a layer:
  // mechanism.get<FavorAttention>()->redraw(n). A decode state goes on with those that it began with, which are saved
  // with it.
  void redraw(Index redraw);
  const Tensor& features() const { return w_; }
  void members(auto&& visit) { visit.buffer("features", w_); }

 private:
  FavorOptions options_;
  Tensor w_;  // [features, size]
};

}  // namespace heed

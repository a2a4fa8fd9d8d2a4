// Random features of the softmax: the features, the mechanism and its decode state.
#include <algorithm>
#include <cmath>
#include <heed/autograd/attention.hpp>
#include <heed/autograd/detail/attention_inputs.hpp>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/matmul.hpp>
#include <heed/autograd/reductions.hpp>
#include <heed/core/kernels/elementwise/scalar_math.hpp>
#include <heed/layers/attention/linear.hpp>
#include <heed/layers/linear.hpp>

namespace heed {
namespace {

// w_r . x' - |x'|^2 / 2 for each row r of w: the logarithms of the features.
Tensor logarithms(In x, const Tensor& w) {
  const Tensor scaled = x * scalar::pow(static_cast<double>(x.dim(-1)), -0.25);
  return matmul(scaled, w.to(x.dtype()).t()) - sum(square(scaled), {-1}, true) * 0.5;
}

const LinearFeatures kByLogarithms{.feature_map = FeatureMap::exp};

// The sums over all keys so far, and the features of these sums. A state keeps its features when those of the mechanism
// change.
class FavorState {
 public:
  explicit FavorState(const Tensor& w) : w_(w.clone()) {}
  Tensor apply(In q, In k, In v, const AttentionCall& call) {
    const NoTape guard;
    const Tensor keys = without_padding(k, call);
    return sums_.apply({logarithms(q, w_), q.where()}, logarithms(keys, w_), v, call);
  }
  const Tensor& lengths() const { return sums_.lengths(); }
  void members(auto&& visit) {
    sums_.members(visit);
    visit.shared("features", w_);
  }

 private:
  Tensor w_;  // [features, size]: a copy, because load_model() writes into the mechanism's
  LinearAttentionState sums_{[](In q, In k, In v, LinearAttentionSums& sums, const AttentionCall& call) {
    return linear_attention_step(q, k, v, sums, call, kByLogarithms);
  }};
};

}  // namespace

Tensor random_features(Index features, Index size, std::uint64_t seed, Index layer, Index redraw) {
  require(features > 0 && size > 0, "random_features: features is ", features, " and size is ", size,
          "; both must be 1 or more");
  Rng rng(seed, static_cast<std::uint64_t>(layer) << 32 | static_cast<std::uint64_t>(redraw));
  Tensor w = Tensor::empty({features, size}, DType::float64);
  for (Index first = 0; first < features; first += size) {
    Parameter block(Tensor::empty({size, size}, DType::float64));
    init::orthogonal_(block, rng);
    const Index rows = std::min(size, features - first);
    Tensor to = w.slice(0, first, first + rows);
    detail::copy_values(to, block.slice(0, 0, rows));
  }
  const Tensor lengths = sqrt(sum(square(rng.normal({features, size}, 0, 1, DType::float64)), {-1}, true));
  return (w * lengths).to(DType::float32);
}

FavorAttention::FavorAttention(Exactly<Index> size, const FavorOptions& options) : options_(options) {
  require(size > 0, "FavorAttention: size is ", size, "; it must be 1 or more");
  if (options_.features == 0)
    options_.features =
        std::max<Index>(size, std::lround(static_cast<double>(size) * scalar::log(static_cast<double>(size))));
  w_ = random_features(options_.features, size, options_.seed, options_.layer);
}

void FavorAttention::redraw(Index redraw) {
  w_ = random_features(options_.features, w_.dim(1), options_.seed, options_.layer, redraw).to(w_.dtype());
}

Tensor FavorAttention::apply(In q, In k, In v, const AttentionCall& call) const {
  check(q.rank() == 4 && k.rank() == 4 && w_.dim(1) == q.dim(3) && w_.dim(1) == k.dim(3), q.where(),
        "favor attention: q is ", q.tensor(), ", k is ", k.tensor(), " and the features are ", w_,
        "; they must be [features, width]");
  detail::check_heads("favor attention", q, k, v);
  const Tensor keys = without_padding(k, call, "favor attention");
  return linear_attention({logarithms(q, w_), q.where()}, logarithms(keys, w_), v, call, kByLogarithms);
}

AttentionState FavorAttention::make_state() const { return FavorState(w_); }

}  // namespace heed

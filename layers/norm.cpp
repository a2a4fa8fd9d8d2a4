// Layers of normalisation.
#include <heed/autograd/detail/running_statistics.hpp>
#include <heed/autograd/reductions.hpp>
#include <heed/layers/norm.hpp>
#include <vector>

namespace heed {

LayerNorm::LayerNorm(Exactly<Index> width, double epsilon, bool with_bias)
    : weight(Tensor::ones({width})), eps(epsilon) {
  if (with_bias) bias = Parameter(Tensor::zeros({width}));
}

RMSNorm::RMSNorm(Exactly<Index> width, double epsilon, bool with_unit_offset)
    : weight(Tensor::full({width}, with_unit_offset ? 0 : 1)), eps(epsilon), unit_offset(with_unit_offset) {}

static std::variant<LayerNorm, RMSNorm> layer_of(const NormLayerOptions& o, Index width) {
  require(o.eps >= 0, "Norm: eps is ", o.eps, "; it must be above 0, or 0 for its default");
  if (o.kind == NormKind::layer) return LayerNorm(width, o.eps > 0 ? o.eps : 1e-5, o.bias);
  return RMSNorm(width, o.eps > 0 ? o.eps : 1e-6, o.unit_offset);
}

Norm::Norm(const NormLayerOptions& options, Exactly<Index> width) : layer(layer_of(options, width)) {}

static Recomputed recomputed_by(const LayerNorm& n, const Tensor& x) {
  const auto f = [eps = n.eps](const Recomputed& r) { return layer_norm(r.from, r.others[0], r.others[1], eps); };
  return {x, f, {n.weight, n.bias}};
}
static Recomputed recomputed_by(const RMSNorm& n, const Tensor& x) {
  const auto f = [eps = n.eps, offset = n.unit_offset](const Recomputed& r) {
    return rms_norm(r.from, offset ? r.others[0] + 1 : r.others[0], eps);
  };
  return {x, f, {n.weight, Tensor()}};
}
Recomputed Norm::recomputed(const Tensor& x) const {
  return std::visit([&](const auto& chosen) { return recomputed_by(chosen, x); }, layer);
}

GroupNorm::GroupNorm(Exactly<Index> num_groups, Exactly<Index> num_channels, const GroupNormOptions& options)
    : groups(num_groups), eps(options.eps) {
  require(groups > 0 && num_channels > 0 && num_channels % groups == 0, "GroupNorm: num_groups is ", groups,
          " and num_channels is ", Index{num_channels},
          "; both must be 1 or more, and num_groups must divide num_channels");
  if (!options.affine) return;
  weight = Parameter(Tensor::ones({num_channels}));
  bias = Parameter(Tensor::zeros({num_channels}));
}

BatchNorm::BatchNorm(Exactly<Index> num_features, const BatchNormOptions& o) : eps(o.eps), momentum(o.momentum) {
  require(num_features > 0, "BatchNorm: num_features is ", Index{num_features}, "; it must be 1 or more");
  require(eps >= 0 && momentum >= 0 && momentum <= 1, "BatchNorm: eps is ", eps, " and momentum is ", momentum,
          "; eps must not be negative, and momentum must be in [0, 1]");
  if (o.affine) {
    weight = Parameter(Tensor::ones({num_features}));
    bias = Parameter(Tensor::zeros({num_features}));
  }
  if (!o.track_running_stats) return;
  running_mean = Tensor::zeros({num_features});
  running_var = Tensor::ones({num_features});
}

Tensor BatchNorm::operator()(In x) const {
  if (!is_training() && running_mean.defined()) return batch_norm(x, running_mean, running_var, weight, bias, eps);
  const Tensor y = batch_norm(x, weight, bias, eps);
  if (!is_training() || x.numel() == 0) return y;
  check(x.numel() > x.dim(1), x.where(), "BatchNorm: x is ", x.tensor(),
        "; in training a channel must have two values or more");
  if (!running_mean.defined()) return y;
  check(running_mean.shape() == Shape{x.dim(1)}, x.where(), "BatchNorm: x is ", x.tensor(), " and the layer has ",
        running_mean.dim(0), " channels; axis 1 of x must have this size");
  const NoTape no_tape;
  std::vector<int> axes = {0};
  for (int a = 2; a < x.rank(); ++a) axes.push_back(a);
  detail::update_statistics(running_mean, mean(x, axes), momentum);
  detail::update_statistics(running_var, variance(x, axes), momentum);
  return y;
}

}  // namespace heed

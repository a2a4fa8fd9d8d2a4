// Normalisation over the last axis: layers.
//
// Example:
//
//   Rng rng(1);
//   const LayerNorm norm(16);
//   const Tensor y = norm(rng.normal({2, 10, 16}));
#pragma once
#include <heed/autograd/norms.hpp>
#include <optional>
#include <string_view>

namespace heed {

// Layer normalisation (Ba, Kiros, Hinton, "Layer normalization", 2016).
struct LayerNorm {
  Parameter weight;  // [width]
  Parameter bias;    // [width], or undefined
  double eps;        // added to the variance

  // Initially the identity after normalisation: weight 1, bias 0.
  explicit LayerNorm(Exactly<Index> width, double epsilon = 1e-5, bool with_bias = true);

  Tensor operator()(In x) const { return layer_norm(x, weight, bias, eps); }  // [..., width] -> [..., width]

  void members(auto&& visit) {  // weight, bias
    visit("weight", weight);
    visit("bias", bias);
  }
};

// Normalisation by the root mean square (Zhang, Sennrich, "Root mean square layer normalization", 2019).
struct RMSNorm {
  Parameter weight;  // [width]
  double eps;        // added to the mean square

  explicit RMSNorm(Exactly<Index> width, double epsilon = 1e-6);  // weight: initially 1

  Tensor operator()(In x) const { return rms_norm(x, weight, eps); }  // [..., width] -> [..., width]

  void members(auto&& visit) { visit("weight", weight); }  // weight
};

// Normalisation: LayerNorm or RMSNorm.
enum class NormKind { layer, rms };

// A LayerNorm or an RMSNorm, for models with a choice. Its parameters have the names of the chosen layer.
struct Norm {
  std::optional<LayerNorm> layer;  // NormKind::layer; otherwise nullopt
  std::optional<RMSNorm> rms;      // NormKind::rms; otherwise nullopt

  Norm(NormKind kind, Exactly<Index> width, bool bias = true);  // with the layer's default eps; RMSNorm has no bias

  Tensor operator()(In x) const { return layer ? (*layer)(x) : (*rms)(x); }  // [..., width] -> [..., width]

  void members(auto&& visit) {  // those of the chosen layer
    if (layer)
      layer->members(visit);
    else
      rms->members(visit);
  }
};

}  // namespace heed

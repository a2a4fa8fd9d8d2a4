// Normalisation over the last axis: layers.
//
// Example:
//
//   Rng rng(1);
//   const LayerNorm norm(16);
//   const Tensor y = norm(rng.normal({2, 10, 16}));
#pragma once
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/norms.hpp>
#include <variant>

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
  Parameter weight;          // [width]
  double eps;                // added to the mean square
  bool unit_offset = false;  // multiplies by 1 + weight, as in Gemma, so that weight decay pulls the factor to 1

  // The initial factor is 1.
  explicit RMSNorm(Exactly<Index> width, double epsilon = 1e-6, bool with_unit_offset = false);

  Tensor operator()(In x) const {  // [..., width] -> [..., width]
    return unit_offset ? rms_norm(x, weight + 1, eps) : rms_norm(x, weight, eps);
  }

  void members(auto&& visit) { visit("weight", weight); }  // weight
};

// Normalisation: LayerNorm or RMSNorm.
enum class NormKind { layer, rms };

// Options of Norm.
struct NormLayerOptions {
  NormKind kind = NormKind::layer;  // which layer
  double eps = 0;                   // 0: 1e-5 for a LayerNorm, 1e-6 for an RMSNorm
  bool bias = true;                 // of a LayerNorm
  bool unit_offset = false;         // of an RMSNorm
};

// A LayerNorm or an RMSNorm, for models with a choice. Its parameters have the names of the chosen layer.
struct Norm {
  std::variant<LayerNorm, RMSNorm> layer;  // the chosen one

  // Throws Error for a negative eps.
  Norm(const NormLayerOptions& options, Exactly<Index> width);

  Tensor operator()(In x) const {  // [..., width] -> [..., width]
    return std::visit([&](const auto& chosen) { return chosen(x); }, layer);
  }

  void members(auto&& visit) {  // those of the chosen layer
    std::visit([&](auto& chosen) { chosen.members(visit); }, layer);
  }
};

}  // namespace heed

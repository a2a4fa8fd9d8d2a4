// Layers of normalisation.
#include <heed/layers/norm.hpp>

namespace heed {

LayerNorm::LayerNorm(Exactly<Index> width, double epsilon, bool with_bias)
    : weight(Tensor::ones({width})), eps(epsilon) {
  if (with_bias) bias = Parameter(Tensor::zeros({width}));
}

RMSNorm::RMSNorm(Exactly<Index> width, double epsilon) : weight(Tensor::ones({width})), eps(epsilon) {}

Norm::Norm(NormKind kind, Exactly<Index> width, bool bias)
    : layer(kind == NormKind::layer ? decltype(layer)(LayerNorm(width, 1e-5, bias)) : RMSNorm(width)) {}

}  // namespace heed

// Layers of normalisation.
#include <heed/layers/norm.hpp>

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

}  // namespace heed

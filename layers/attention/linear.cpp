#include <heed/layers/attention/linear.hpp>

namespace heed {
namespace {

constexpr struct {
  std::string_view name;
  FeatureMap map;
} kMaps[] = {{"elu", FeatureMap::elu}, {"relu", FeatureMap::relu},   {"softplus", FeatureMap::softplus},
             {"exp", FeatureMap::exp}, {"poly2", FeatureMap::poly2}, {"identity", FeatureMap::identity}};

}  // namespace

FeatureMap feature_map(std::string_view name) {
  std::string all;
  for (const auto& m : kMaps) {
    if (m.name == name) return m.map;
    all += (all.empty() ? "" : ", ") + std::string(m.name);
  }
  fail("linear attention: the feature map is '", std::string(name), "'; it must be one of ", all);
}

std::string_view name_of(FeatureMap map) {
  for (const auto& m : kMaps)
    if (m.map == map) return m.name;
  return "";
}

Tensor LinearAttentionState::apply(In q, In k, In v) {
  const Tensor y = step_(q, k, v, sums_);
  length_ = Tensor::full({}, static_cast<double>(length() + k.dim(2)),
                         DType::int32);  // last: what is refused changes nothing
  return y;
}

LinearAttentionOptions linear_options(const AttentionCall& call, FeatureMap map, double eps) {
  return {.feature_map = map,
          .causal = call.causal,
          .eps = eps,
          .key_lengths = call.key_lengths,
          .key_mask = call.key_mask,
          .key_bias = call.bias.defined() && call.bias.rank() >= 2 ? call.bias.squeeze(-2) : call.bias};
}

static LinearAttentionOptions options_of(const LinearAttention& m, const AttentionCall& call) {
  LinearAttentionOptions o = linear_options(call, m.feature_map, m.eps);
  o.query_map = m.query_map;
  o.key_map = m.key_map;
  o.signed_features = m.signed_features;
  return o;
}

Tensor LinearAttention::apply(In q, In k, In v, const AttentionCall& call) const {
  // The heads lie side by side in memory, so that merging them again is a view.
  const Tensor y = linear_attention_merged(q, k, v, options_of(*this, call));
  return y.view({q.dim(0), q.dim(2), q.dim(1), v.dim(3)}).transpose(1, 2);
}

AttentionState LinearAttention::make_state() const {
  return LinearAttentionState([options = options_of(*this, {})](In q, In k, In v, LinearAttentionSums& sums) {
    return linear_attention_step(q, k, v, sums, options);
  });
}

}  // namespace heed

// Names of feature maps, and the decode state of linear attention.
#include <heed/core/names.hpp>
#include <heed/layers/attention/linear.hpp>

namespace heed {
namespace {

struct NamedMap {
  std::string_view name;
  FeatureMap map;
};
constexpr NamedMap kMaps[] = {{"elu", FeatureMap::elu},           {"relu", FeatureMap::relu},
                              {"softplus", FeatureMap::softplus}, {"exp", FeatureMap::exp},
                              {"poly2", FeatureMap::poly2},       {"identity", FeatureMap::identity}};

}  // namespace

FeatureMap feature_map(std::string_view name) {
  return detail::row_named(name, "linear attention: the feature map", kMaps, &NamedMap::name).map;
}

AttentionState LinearAttention::make_state() const {
  return LinearAttentionState([f = features](In q, In k, In v, LinearAttentionSums& sums, const AttentionCall& call) {
    return linear_attention_step(q, k, v, sums, call, f);
  });
}

}  // namespace heed

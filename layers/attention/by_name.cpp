#include <heed/layers/attention/by_name.hpp>
#include <heed/layers/attention/linear.hpp>

namespace heed {

const std::vector<std::string>& mechanism_names() {
  static const std::vector<std::string> names = {"softmax", "linear"};
  return names;
}

MechanismFactory mechanism_by_name(std::string_view name, const MechanismOptions& o) {
  if (name == "softmax") return softmax_mechanism;
  if (name == "linear")
    return [map = feature_map(o.feature_map)](Index, Rng&) { return LinearAttention{.feature_map = map}; };
  std::string all;
  for (const std::string& n : mechanism_names()) all += (all.empty() ? "" : ", ") + n;
  fail("attention: the mechanism is '", std::string(name), "'; it must be one of ", all);
}

}  // namespace heed

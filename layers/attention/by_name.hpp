// Mechanisms by their names, for command lines and checkpoints.
#pragma once
#include <heed/layers/transformer.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace heed {

// What mechanisms have beside their name; each takes what is its own.
struct MechanismOptions {
  std::string feature_map = "elu";  // linear
};

// "softmax" or "linear". Throws Error for another name or an option that the mechanism cannot take.
MechanismFactory mechanism_by_name(std::string_view name, const MechanismOptions& options = {});
const std::vector<std::string>& mechanism_names();

}  // namespace heed

// Mechanisms by their names, for command lines and checkpoints.
#pragma once
#include <heed/layers/transformer.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace heed {

// What mechanisms have beside their name; each takes what is its own. 0: by the context, as said.
struct MechanismOptions {
  bool causal = true;               // how they will be asked to attend: `efficient` has a form for each
  std::string feature_map = "elu";  // linear
  Index heads = 0, head_size = 0;   // of the layer: for mechanisms with parameters, favor and lsh
  Index context = 0;                // the most positions: luong-location, linformer, and the sizes below
  Index window = 0;                 // window, and lsh in each round: an eighth of the context, at least 4
  Index stride = 0;                 // strided, and the blocks of fixed: the square root of the context
  Index top_k = 16;                 // top-k
  Index rows = 0;                   // linformer, of projected keys: a quarter of the context, at least 4
  std::uint64_t seed = 1;           // of favor's features and lsh's rotations
};

// One of mechanism_names(options.causal). Throws Error for another name, and for an option that the mechanism needs and
// does not have, or cannot take.
MechanismFactory mechanism_by_name(std::string_view name, const MechanismOptions& options = {});
// Those that can be causal; or those that can attend to all positions, for encoders.
const std::vector<std::string>& mechanism_names(bool causal = true);

}  // namespace heed

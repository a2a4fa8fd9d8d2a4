// Properties that must be the same on all ranks of run(), and the check of them. Private to optim/run.
#pragma once
#include <heed/optim/run/state.hpp>
#include <string>
#include <utility>
#include <vector>

namespace heed::detail {

// The names of these properties, and their values on this rank.
using RunProperties = std::vector<std::pair<std::string, std::string>>;
// The properties before the next step. Weights are represented by a hash, data by their fingerprints.
RunProperties properties_of(const RunState& run);
// Throws Error on all ranks if a property differs between ranks. It names the property, the rank and the host.
void require_same(const RunRanks& ranks, const RunProperties& here);

}  // namespace heed::detail

// What must be the same on all ranks of a run. Internal.
#pragma once
#include <heed/optim/detail/run_state.hpp>
#include <heed/optim/ranks.hpp>
#include <string>
#include <utility>
#include <vector>

namespace heed::detail {

// A property of a run that must be the same on all ranks, and what it is here.
using RunProperties = std::vector<std::pair<std::string, std::string>>;
// Of a run before its next step. Weights and data are told by hashes, data by those of their first batches.
RunProperties properties_of(const RunState& run);
// Error on all ranks where two differ: it names rank, host and what differs.
void require_same(Ranks& ranks, const RunProperties& here);

}  // namespace heed::detail

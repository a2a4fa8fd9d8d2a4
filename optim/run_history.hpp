// The history of a run in its checkpoint. Internal.
#pragma once
#include <heed/optim/run_loop.hpp>

namespace heed::detail {

void store_history(const RunHistory& history, Checkpoint& c);
// Error where the checkpoint has none, or one that is not of so many steps.
RunHistory load_history(const Checkpoint& c, Index step);

}  // namespace heed::detail

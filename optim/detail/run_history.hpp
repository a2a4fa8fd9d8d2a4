// The step and the history of a run in its checkpoint. Internal.
#pragma once
#include <heed/optim/run_loop.hpp>

namespace heed::detail {

void store_history(const RunHistory& history, Checkpoint& c);
// The step of a checkpoint, held against what else in it grows with the steps, as in the sections of these optimizers.
// An optimizer may have worked before the run, so its own count may be larger. Error where they are not of one step.
Index step_of(const Checkpoint& c, const std::vector<std::string>& optimizers);
// Error where the checkpoint has none, or one that is not of so many steps.
RunHistory load_history(const Checkpoint& c, Index step);
// The place of the best evaluation after step `from` by the number of this name, "loss" among them, whose lowest or
// highest is the best; the first where several are as good; -1: there is none. NaN is never the best.
Index best_evaluation(const RunHistory& history, const std::string& name, bool highest, Index from);

}  // namespace heed::detail

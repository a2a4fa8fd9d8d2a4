// How run() stores its step and its history in a checkpoint, and loads them. Private to optim/run.
#pragma once
#include <heed/data/checkpoint.hpp>
#include <heed/optim/run/options.hpp>
#include <heed/optim/run/result.hpp>

namespace heed::detail {

void store_history(const RunHistory& history, Checkpoint& c);
// The step of a checkpoint. Throws Error if the sections of these optimizers are of another step. An optimizer may have
// made steps before the run, so its own count may be larger.
Index step_of(const Checkpoint& c, const std::vector<std::string>& optimizers);
// Throws Error if the checkpoint has no history, or a history of another number of steps.
RunHistory load_history(const Checkpoint& c, Index step);
// The index of the best evaluation after step `from`, by EvaluationOptions::monitor. The first of equal values is the
// best, NaN never. -1 if there is none.
Index best_evaluation(const RunHistory& history, const EvaluationOptions& options, Index from);

}  // namespace heed::detail

// The evaluations of a run. Internal.
#pragma once
#include <heed/optim/ranks.hpp>
#include <heed/optim/run_loop.hpp>

namespace heed::detail {

// evaluate_metrics(), the batches dealt out to the ranks; null: one process.
Metrics evaluate_metrics(const std::function<Metrics(const Batch&)>& metrics, const EvaluationSet& set, Index batches,
                         Ranks* ranks);

}  // namespace heed::detail

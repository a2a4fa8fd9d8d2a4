// The evaluations of a run. Internal.
#pragma once
#include <heed/optim/ranks.hpp>
#include <heed/optim/run_loop.hpp>
#include <string>

namespace heed::detail {

// evaluate_metrics(), the batches dealt out to the ranks; null: one process.
Metrics evaluate_metrics(const std::function<Metrics(const Batch&)>& metrics, const EvaluationSet& set, Index batches,
                         Ranks* ranks);

// "accuracy", "f1" and "loss", with the quotes.
std::string names_of(const Metrics& metrics);
// Error where these metrics of an evaluation lack the one that RunOptions::monitor names.
void check_monitor(const std::string& monitor, const Metrics& metrics);

bool has_tensors(const Batch& batch);

// A sentence about a tensor of the batch that has no elements, of which means are NaN; empty: there is none.
std::string empty_tensor(const Batch& batch);

}  // namespace heed::detail

// The evaluations that run() makes on all ranks, and checks of their metrics. Private to optim/run.
#pragma once
#include <heed/optim/ranks/run_ranks.hpp>
#include <heed/optim/run/evaluation.hpp>
#include <string>

namespace heed::detail {

// evaluate_metrics() with the batches distributed among the ranks.
Metrics evaluate_metrics(const std::function<Metrics(const Batch&)>& metrics, const EvaluationSet& set, Index batches,
                         const RunRanks& ranks);

// The names of metrics for messages: "accuracy", "f1" and "loss", with the quotes.
std::string names_of(const Metrics& metrics);
// Throws Error if the metrics of an evaluation lack the one that EvaluationOptions::monitor names.
void check_monitor(const std::string& monitor, const Metrics& metrics);

bool has_tensors(const Batch& batch);  // whether any tensor of the batch is defined

// A sentence about a tensor of the batch without elements, over which means are NaN; empty if there is none.
std::string empty_tensor(const Batch& batch);

}  // namespace heed::detail

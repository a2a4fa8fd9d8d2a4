// The result of a run: how it ended, its last evaluation, and the losses of all steps.
//
// Example:
//
//   const RunResult result{.steps = 2, .history = {.losses = {3.5, 2.25}}};
//   std::cout << result.steps << " steps, last loss " << result.history.losses.back() << '\n';
#pragma once
#include <heed/core/dtype.hpp>
#include <heed/optim/run/evaluation.hpp>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace heed {

// The losses of a run since its first step, with those of the runs that it continues.
struct RunHistory {
  std::vector<double> losses = {};                               // of steps 1, 2, ...
  std::vector<std::pair<Index, double>> validation_losses = {};  // the step before the evaluation, and its loss
  std::vector<Metrics> validation_metrics = {};  // other metrics of these evaluations; each may be empty
  std::map<std::string, std::vector<double>> other_losses = {};  // of updates with their own loss, by name
};

// The result of run().
struct RunResult {
  Index steps = 0;           // steps done, with those before a resume
  Index resumed_from = 0;    // step of the checkpoint; 0: a new run
  bool interrupted = false;  // ended before the last step, by a signal
  bool stopped = false;      // ended before the last step, by a callback, by patience or by the time limit
  Index best_step = 0;       // step of the best evaluation by EvaluationOptions::monitor; 0: none
  RunHistory history = {};   // of all steps
  std::optional<double> validation_loss = {};  // of the last evaluation
  Metrics validation_metrics = {};             // other metrics of that evaluation
  std::vector<std::string> warnings = {};      // failed saves and damage of the log, as in the progress output
  // "nats per token" or "nats" if the loss is a cross-entropy and a step was made; else empty.
  std::string loss_unit = {};
};

}  // namespace heed

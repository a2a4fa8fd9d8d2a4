// Trains one entry of the race and measures it.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "examples/experiments/race_tasks.hpp"

namespace heed::examples {

// An evaluation during a run.
struct RacePoint {
  Index step = 0;            // steps done before it
  double training_loss = 0;  // mean since the evaluation before
  RaceScore score;
};

// The result of a run.
struct RaceResult {
  std::string task, label, mechanism;
  Index planned_steps = 0;
  Index parameters = 0;
  std::vector<double> losses;     // training loss per step
  std::vector<RacePoint> points;  // the last one uses all held-out data
  double step_seconds = 0;        // median time of a step
  double tokens_per_second = 0;   // from the median step
  std::size_t peak_bytes = 0;     // max of all tensors in training steps: weights, gradients, moments, activations
  double seconds = 0;             // of the whole run
  std::string error;              // the reason of a failure; empty if there was none
  bool stopped = false;           // ended before the last step
};

// The options of a run.
struct RaceRunOptions {
  Index steps = 0;
  std::uint64_t seed = 1;
  Index points = 8;                                                      // evaluations, including the last one
  std::function<bool()> stop = {};                                       // called before each step; true ends the run
  std::function<void(const RaceResult&)> stepped = {};                   // called after each step
  std::function<void(const RaceResult&, const RacePoint&)> scored = {};  // called after each evaluation
};

// Trains an entry and returns its result; an exception becomes `error`. All entries use AdamW, gradients clipped to
// norm 1, and a learning rate that falls to a tenth by a cosine after warm-up. Batches, weights and losses depend on
// the seed only, with the same bits at any number of threads. An evaluation reads at most `steps` batches.
RaceResult run_entry(const RaceEntry& entry, const RaceRunOptions& options);

// Seconds per step of an entry: the faster of two steps, after one for warm-up. Throws Error if the entry cannot run.
double measure_step(const RaceEntry& entry, std::uint64_t seed);

}  // namespace heed::examples

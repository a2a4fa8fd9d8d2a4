// Trains one entry of the race, and measures it.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "examples/experiments/race_tasks.hpp"

namespace heed::examples {

struct RacePoint {
  Index step = 0;            // after it
  double training_loss = 0;  // mean since the last point
  RaceScore score;
};

struct RaceResult {
  std::string task, label, mechanism;
  Index asked_steps = 0;
  Index parameters = 0;
  std::vector<double> losses;     // of training, by step
  std::vector<RacePoint> points;  // the last is of all that is held out
  double step_seconds = 0;        // median
  double tokens_per_second = 0;   // by the median step
  std::size_t peak_bytes = 0;     // of all tensors during training steps: weights, gradients, moments, activations
  double seconds = 0;             // in all
  std::string error;              // why it failed; empty: it did not
  bool stopped = false;           // before the last step
};

struct RaceRunOptions {
  Index steps = 0;
  std::uint64_t seed = 1;
  Index points = 8;                                                      // evaluations, the last one included
  std::function<bool()> stop = {};                                       // asked before each step
  std::function<void(const RaceResult&)> stepped = {};                   // after each step
  std::function<void(const RaceResult&, const RacePoint&)> scored = {};  // after each evaluation
};

// AdamW, the rate of a cosine from the task's to a tenth of it behind a warm-up, gradients clipped to a norm of 1: the
// same for all. Batches, weights and so losses are functions of the seed, with the same bits at any number of threads.
// An evaluation takes no more batches than steps were asked for. An Error becomes the result's `error`.
RaceResult run_entry(const RaceEntry& entry, const RaceRunOptions& options);

// Seconds of a step of this entry: the faster of two, after one to warm up. Throws Error where it cannot run.
double measure_step(const RaceEntry& entry, std::uint64_t seed);

}  // namespace heed::examples

// The memory of training: a lower bound, which refuses absurd sizes before anything is allocated, and a prediction once
// the model exists.
#pragma once
#include <functional>
#include <heed/core/memory.hpp>
#include <heed/core/shape.hpp>
#include <heed/optim/optimizers/optimizer.hpp>
#include <heed/optim/run/options.hpp>
#include <string>

namespace heed::examples {

// The sizes that determine the lower bound.
struct TrainingSizes {
  Index layers = 0, width = 0, vocabulary = 0, context = 0, batch = 0, batches = 1;
  Index moments = 0;  // numbers per parameter that the optimizer keeps
};

// A lower bound: float32 parameters with gradients and moments, the inputs of layers that backward reads, and the
// batches of a step.
inline double min_training_bytes(const TrainingSizes& s) {
  const auto of = [](Index n) { return static_cast<double>(n); };
  const double width = of(s.width), rows = of(s.batch) * of(s.context);
  // Four matrices of attention, and a feed-forward part at least as large as two matrices of four times the width.
  const double parameters = of(s.layers) * 12 * width * width + of(s.vocabulary) * width;
  const double kept = of(s.layers) * 8 * width * rows;  // less than queries, keys, values and feed-forward
  const double tokens = 2 * of(s.batches) * rows;       // inputs and targets
  return 4 * (parameters * (2 + of(s.moments)) + kept + tokens);
}

// Throws Error if the machine cannot hold this lower bound.
inline void check_training_memory(const TrainingSizes& s) {
  check_memory("training: " + std::to_string(s.layers) + " layers of width " + std::to_string(s.width) +
                   " on batches of " + std::to_string(s.batch) + " x " + std::to_string(s.context) + " tokens, " +
                   std::to_string(s.batches) + " per step,",
               min_training_bytes(s));
}

// A prediction, in bytes.
struct TrainingMemory {
  double tensors = 0;  // max in tensors during a step: memory_use().peak
  double process = 0;  // max resident: now, plus a step, plus some pages of a checkpoint being written
};

// Predicts the memory of a run by a dry run (core/dry_run.hpp) of a step, forward and backward, and of `evaluation`,
// which computes the loss of a batch. Call it when model and optimizer exist and nothing else was computed. Gradients
// are reset by zero_grad() after it. The memory of a loaded checkpoint is subtracted, because the run releases it.
// Returns zeros if the loss depends on values that a dry run does not compute.
TrainingMemory predict_training_memory(const std::vector<NamedParameter>& parameters, const Optimizer& optimizer,
                                       const RunOptions& options, const std::function<Tensor()>& loss,
                                       const std::function<void()>& evaluation = {});

}  // namespace heed::examples

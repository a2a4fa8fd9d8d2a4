// What training takes in memory: at the very least, which is enough to refuse sizes that cannot be meant before
// anything of them is made; and what it will take, once the model is there.
#pragma once
#include <functional>
#include <heed/core/memory.hpp>
#include <heed/core/shape.hpp>
#include <heed/optim/run_loop.hpp>
#include <string>

namespace heed::examples {

struct TrainingSizes {
  Index layers = 0, width = 0, vocabulary = 0, context = 0, batch = 0, batches = 1;
  Index moments = 0;  // numbers that the optimizer keeps of each parameter
};

// float32 parameters with gradients and moments; of each layer's inputs, what backward reads; the batches of a step.
inline double least_training_bytes(const TrainingSizes& s) {
  const auto of = [](Index n) { return static_cast<double>(n); };
  const double width = of(s.width), rows = of(s.batch) * of(s.context);
  // 4 matrices of attention, and of the feed-forward part at least as many numbers as 2 of 4 times the width.
  const double parameters = of(s.layers) * 12 * width * width + of(s.vocabulary) * width;
  const double kept =
      of(s.layers) * 8 * width * rows;             // queries, keys, values and the feed-forward part alone are more
  const double tokens = 2 * of(s.batches) * rows;  // inputs and targets
  return 4 * (parameters * (2 + of(s.moments)) + kept + tokens);
}

// Throws Error where the machine cannot hold that.
inline void check_training_memory(const TrainingSizes& s) {
  check_memory("training: " + std::to_string(s.layers) + " layers of width " + std::to_string(s.width) +
                   " on batches of " + std::to_string(s.batch) + " x " + std::to_string(s.context) + " tokens, " +
                   std::to_string(s.batches) + " a step,",
               least_training_bytes(s));
}

// In bytes.
struct TrainingMemory {
  double tensors = 0;  // of a step, at most at one time: memory_use().peak
  double process = 0;  // resident, at most: what is now, what a step adds, some pages of a checkpoint being written
};

// Runs what a step of the run computes, forward and backward, without its work (core/detail/dry_run.hpp), when model
// and optimizer are there and nothing else was computed; gradients are zero_grad() after it. A checkpoint that the run
// goes on from is taken off, as the run lets it go. Nothing where the loss must have values to go on.
TrainingMemory predict_training_memory(const std::vector<NamedParameter>& parameters, const Optimizer& optimizer,
                                       const RunOptions& options, const std::function<Tensor()>& loss);

}  // namespace heed::examples

// The parts of a run: optimizers with their schedules and losses, data, metrics, and the values of a checkpoint.
//
// run() for a model fills the parts. Give it several updates to train parts of a model by different optimizers, or by
// losses of their own, as in a GAN.
//
// Example:
//
//   Rng rng(1);
//   const CopyTask task({.batch = 4, .length = 8});
//   GPT model({.vocabulary = task.vocabulary(), .context = 8,
//              .blocks = {.layers = 1, .attention = {.width = 16, .heads = 2}}}, rng);
//   const auto [embedding, others] = split_parameters(model, {"tokens", "positions"});
//   AdamW weights(others, {.lr = 1e-3});
//   SGD table(embedding, {.lr = 0.1});
//   Schedule cosine("cosine", {.lr = 1e-3, .steps = 4}), constant("constant", {.lr = 0.1});
//   const std::vector<Update> updates = {{weights, cosine}, {table, constant, {}, "embedding"}};
//   run(model, updates, task, {}, {.steps = 4});
#pragma once
#include <functional>
#include <heed/core/members.hpp>
#include <heed/data/batches.hpp>
#include <heed/data/checkpoint.hpp>
#include <heed/optim/optimizers/optimizer.hpp>
#include <heed/optim/optimizers/schedule.hpp>
#include <heed/optim/run/evaluation.hpp>
#include <string>
#include <vector>

namespace heed {

// One optimizer of a run with its schedule and loss. A step does all updates of the run in order.
struct Update {
  Optimizer& optimizer;  // must outlive the run
  Schedule& schedule;    // of the optimizer's learning rate; must outlive the run
  // Mean over the batch's counted targets, or a weighted mean (autograd/losses.hpp). Empty: the update shares the loss
  // and the gradients of the update before it. Empty in the first update: the model's loss.
  std::function<Tensor(const Batch&)> loss = {};
  std::string name = {};  // name in the log and the checkpoint, except for the first; empty: its number, from 1
};

// The parts of a run. The functions run() for a model (run.hpp) fill them.
struct RunParts {
  std::function<void(Checkpoint&)> store = {};       // stores the model's values in a checkpoint
  std::function<void(const Checkpoint&)> load = {};  // loads the model's values from a checkpoint
  std::function<Tensor(const Batch&)> loss = {};     // the model's; as Update::loss
  std::vector<Update> updates = {};                  // in the order of a step; at least one
  Dataset data = {};                                 // for training
  EvaluationSet validation = {};                     // for evaluations; empty: no evaluations
  // Means over the targets of an evaluation batch: "loss" and others by name, which the progress line, the log and the
  // checkpoint show. Empty: {"loss", loss(batch)}.
  std::function<Metrics(const Batch&)> metrics = {};
  // The buffers of the model. Runs with several ranks need them if a layer has running statistics (BatchNorm).
  std::function<std::vector<NamedBuffer>()> buffers = {};
};

// The batches that the run of a checkpoint has read, grouped by their limits, oldest first, for continued().
std::vector<BatchesRead> batches_read(const Checkpoint& checkpoint);

}  // namespace heed

// The training loop that programs share: steps, evaluation, checkpoints, exact resume, log, progress line, Ctrl-C.
//
// Several optimizers, each with a schedule, may train parts of one model or have their own losses, as in a GAN:
// run(model, {{weights, cosine}, {embedding, constant}}, ...). docs/training.md has the details.
//
// A step is a pure function of the state before it, the seed and the number of the step. No clock time enters a
// checkpoint. So a run that was killed and resumed ends with the same bits as an uninterrupted run.
//
// Example:
//
//   manual_seed(1);
//   Rng rng(1);
//   const CopyTask task({.batch = 4, .length = 8});
//   GPT model({.vocabulary = task.vocabulary(), .context = 8,
//              .blocks = {.layers = 1, .attention = {.width = 16, .heads = 2}}}, rng);
//   AdamW optimizer(decay_groups(model, 0.1), {.lr = 1e-2});
//   Schedule schedule("cosine", {.lr = 1e-2, .warmup = 2, .steps = 10});
//   const RunResult result = run(model, optimizer, schedule, task, {}, {.steps = 10});
#pragma once
#include <functional>
#include <heed/autograd/tape.hpp>
#include <heed/core/members.hpp>
#include <heed/data/batches.hpp>
#include <heed/data/checkpoint.hpp>
#include <heed/optim/optimizers/optimizer.hpp>
#include <heed/optim/optimizers/schedule.hpp>
#include <heed/optim/run/options.hpp>
#include <heed/optim/run/parts.hpp>
#include <heed/optim/run/result.hpp>
#include <utility>
#include <vector>

namespace heed {

// Trains as the options say. Throws Error on all ranks if ranks differ in their program, options, model or data. Also
// throws Error for
// - options out of range, and names that no checkpoint can store
// - data or a checkpoint that cannot be read or written, or that another run writes, and a last save that failed
// - a checkpoint that exists or is missing, against CheckpointOptions::start
// - a checkpoint of another model or of other data
// - a checkpoint with an average or last weights if this run has none, or the reverse
// - a step or an evaluation without counted targets, and a loss that is not finite
// Throws FileError for files that check_files() refuses.
RunResult run(RunParts parts, const RunOptions& options);

namespace detail {
// Throws Error if a parameter that is not frozen has no optimizer, or if two optimizers of the run train a parameter.
void check_trained(const std::vector<NamedParameter>& parameters, const std::vector<Update>& updates);
}  // namespace detail

// Trains a model. Evaluations use the loss of the first update; if it has none, the model's own: loss(batch), or
// loss(inputs, targets). `metrics`: RunParts::metrics. Throws Error as above, if a parameter of the model that is not
// frozen has no optimizer, and if two optimizers train a parameter. Errors that loss(inputs, targets) finds in the
// batch itself name the line that called run(); errors in a layer name the layer.
template <class M>
RunResult run(M& model, std::vector<Update> updates, Dataset data, EvaluationSet validation, const RunOptions& options,
              std::function<Metrics(const Batch&)> metrics = {}, Where where = Where::current()) {
  std::function<Tensor(const Batch&)> loss;
  if (!updates.empty()) loss = updates[0].loss;
  if (!loss) {
    if constexpr (requires(const Batch& b) { model.loss(b); })
      loss = [&model](const Batch& b) { return model.loss(b); };
    else if constexpr (requires(In x) { model.loss(x, x); })
      loss = [&model, where](const Batch& b) { return model.loss(In(b.inputs, where), In(b.targets, where)); };
    else
      fail("run: the model has no loss(const Batch&) and no loss(inputs, targets); give run() a loss");
  }
  detail::check_trained(named_parameters(model), updates);
  const bool part = options.checkpoint.trainable_only;
  return run({.store = [&model, part](Checkpoint& c) { part ? store_trainable(c, model) : store_model(c, model); },
              .load =
                  [&model, part](const Checkpoint& c) {
                    if (part)
                      load_trainable(c, model);
                    else
                      load_model(c, model);
                  },
              .loss = std::move(loss),
              .updates = std::move(updates),
              .data = std::move(data),
              .validation = std::move(validation),
              .metrics = std::move(metrics),
              .buffers = [&model] { return named_buffers(model); }},
             options);
}

// Trains a model with one optimizer, with the model's own loss unless `loss` is given.
template <class M>
RunResult run(M& model, Optimizer& optimizer, Schedule& schedule, Dataset data, EvaluationSet validation,
              const RunOptions& options, std::function<Tensor(const Batch&)> loss = {},
              std::function<Metrics(const Batch&)> metrics = {}, Where where = Where::current()) {
  return run(model, std::vector<Update>{{optimizer, schedule, std::move(loss)}}, std::move(data), std::move(validation),
             options, std::move(metrics), where);
}

}  // namespace heed

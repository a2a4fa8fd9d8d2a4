// The training loop that programs share: steps, evaluation, checkpoints, exact resume, log, progress, Ctrl-C.
//
//   GPT model(options, rng);
//   AdamW optimizer(decay_groups(model, 0.1), {.lr = 1e-3});
//   Schedule schedule("cosine", {.lr = 1e-3, .min_lr = 1e-4, .warmup = 100, .steps = 2000});
//   const RunResult result = run(model, optimizer, schedule, batches, held_out, {.steps = 2000, .checkpoint =
//   "model.h5"});
//
// Everything that a step does is a function of the state before it, the seed and its number, so that a run that was
// killed and resumed ends with the same bits as one that was not. No clock time enters a checkpoint.
#pragma once
#include <filesystem>
#include <functional>
#include <heed/autograd/tape.hpp>
#include <heed/data/batches.hpp>
#include <heed/data/checkpoint.hpp>
#include <heed/optim/average.hpp>
#include <heed/optim/metrics.hpp>
#include <heed/optim/optimizer.hpp>
#include <heed/optim/progress.hpp>
#include <heed/optim/schedule.hpp>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace heed {

struct RunOptions {
  Index steps = 1000;
  Index accumulate = 1;              // batches a step, all held until it ends; their gradients are averaged
  double grad_clip = 1;              // largest norm of the gradient; 0: no clipping
  std::uint64_t seed = 1;            // of batches and dropout
  DType precision = DType::float32;  // bfloat16: MatmulPrecision of steps and evaluations

  Index eval_every = 250;  // steps between evaluations; 0: only after the last step
  Index eval_batches = 0;  // batches an evaluation; 0: the whole set, which the last one always is
  bool find_nan = false;   // name the op of the first NaN (slow)
  // A moving average of the model's weights, updated after each step. Evaluations are of the averages then, and the
  // checkpoint keeps both; after the run the model has its own weights, and AveragedWeights shows it the averages.
  WeightAverage* average = nullptr;

  std::filesystem::path checkpoint = {};  // empty: none. No other run may write it, which path.lock says
  Index checkpoint_every = 0;             // steps; 0: only at the end
  bool resume = false;                    // go on from `checkpoint` where that is a file
  // Kept in the checkpoint: configuration, tokenizer, ... Without zero bytes, and under names that the run does not use
  // itself: not step, seed, optimizer_name, instruction_set, and no section (model, optimizer, history, ...).
  std::map<std::string, std::string> texts = {};

  // JSON lines, one a step; empty: none. A resumed run goes on in it, or begins it where there is no such file. What is
  // in it stays until the first step was made. No other run may write it; it may also be a pipe or a terminal.
  std::filesystem::path log = {};
  std::FILE* progress = nullptr;     // where to show progress; null: nowhere
  std::optional<double> floor = {};  // no model's loss on the whole evaluation set is below: shown beside that loss
  std::optional<double> eval_floor = {};  // the same of its first eval_batches, for the evaluations that see only them
  double flops_per_token = 0;             // with peak_flops, shows the share of the machine's peak
  double peak_flops = 0;
  // Ctrl-C, SIGTERM, SIGHUP and a pipe of `progress` that nobody reads any more finish the step, save and return; a
  // second signal kills. One that was ignored before the run stays ignored.
  bool handle_interrupt = false;
};

struct RunHistory {
  std::vector<double> losses;                               // of step 1, 2, ...
  std::vector<std::pair<Index, double>> validation_losses;  // after these steps
  std::vector<Metrics> validation_metrics;  // beside each of them: what else the evaluation told, maybe nothing
};

struct RunResult {
  Index steps = 0;  // done in all
  Index resumed_from = 0;
  bool interrupted = false;
  RunHistory history;
  std::optional<double> validation_loss;  // the last
  Metrics validation_metrics;             // of the same evaluation
};

// What is trained. run() below fills it from a model.
struct RunParts {
  std::function<void(Checkpoint&)> store;       // puts the model's values into a checkpoint
  std::function<void(const Checkpoint&)> load;  // takes them out
  std::function<Tensor(const Batch&)> loss;     // mean over the batch's counted targets
  Optimizer* optimizer = nullptr;
  Schedule* schedule = nullptr;
  std::function<Batch(std::uint64_t seed, std::uint64_t step)> batch;
  EvaluationSet validation;
  // Means over the counted targets of an evaluation batch: "loss", and others by name, which go to the progress line,
  // the log and the checkpoint. Empty: {"loss", loss(batch)}.
  std::function<Metrics(const Batch&)> metrics = {};
};

// Throws Error for options out of range, names that no checkpoint can hold, data or checkpoint that cannot be read or
// written or that another run writes, a checkpoint of another model, with an average where this run has none or the reverse, a step or an
// evaluation none of whose targets counts, and a loss that is not finite.
RunResult run(RunParts parts, const RunOptions& options);

namespace detail {
// Error where a parameter that is not frozen has no optimizer.
void check_trained(const std::vector<NamedParameter>& parameters);
}  // namespace detail

// Error for a parameter of the model that is not frozen and that no optimizer trains. The model's own loss(inputs,
// targets), unless `loss` is given. `metrics`: RunParts. Errors of what the model's loss does
// with a batch itself name the line that called run(), those behind it the layer.
template <class M>
RunResult run(M& model, Optimizer& optimizer, Schedule& schedule, Dataset data, EvaluationSet validation,
              const RunOptions& options, std::function<Tensor(const Batch&)> loss = {},
              std::function<Metrics(const Batch&)> metrics = {}, Where where = Where::current()) {
  if (!loss) {
    if constexpr (requires(In x) { model.loss(x, x); })
      loss = [&model, where](const Batch& b) { return model.loss(In(b.inputs, where), In(b.targets, where)); };
    else
      fail("run: the model has no loss(inputs, targets); give run() a loss");
  }
  detail::check_trained(named_parameters(model));
  auto prefetch = std::make_shared<Prefetch>(std::move(data));
  return run({.store = [&model](Checkpoint& c) { store_model(c, model); },
              .load = [&model](const Checkpoint& c) { load_model(c, model); },
              .loss = std::move(loss),
              .optimizer = &optimizer,
              .schedule = &schedule,
              .batch = [prefetch](std::uint64_t seed, std::uint64_t step) { return prefetch->batch(seed, step); },
              .validation = std::move(validation),
              .metrics = std::move(metrics)},
             options);
}

}  // namespace heed

// The training loop that programs share: steps, evaluation, checkpoints, exact resume, log, progress, Ctrl-C.
//
// Several optimizers, each with a schedule, may train parts of one model, or have losses of their own, as in a GAN:
// run(model, {{weights, cosine}, {embedding, constant}}, ...). docs/training.md tells more.
//
// Everything that a step does is a function of the state before it, the seed and its number, so that a run that was
// killed and resumed ends with the same bits as one that was not. No clock time enters a checkpoint.
//
// Example:
//
//   manual_seed(1);
//   Rng rng(1);
//   const CopyTask task({.batch = 4, .length = 8});
//   GPT model({.vocabulary = task.vocabulary(), .context = 8, .layers = 1, .heads = 2, .width = 16}, rng);
//   AdamW optimizer(decay_groups(model, 0.1), {.lr = 1e-2});
//   Schedule schedule("cosine", {.lr = 1e-2, .warmup = 2, .steps = 10});
//   const RunResult result = run(model, optimizer, schedule, task, {}, {.steps = 10});
#pragma once
#include <cstdio>
#include <filesystem>
#include <functional>
#include <heed/autograd/tape.hpp>
#include <heed/core/dtype.hpp>
#include <heed/data/batches.hpp>
#include <heed/data/checkpoint.hpp>
#include <heed/optim/average.hpp>
#include <heed/optim/optimizer.hpp>
#include <heed/optim/schedule.hpp>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace heed {

class Profile;  // optim/profile.hpp
class Ranks;    // optim/ranks.hpp

// ---- Evaluation ----

// Means over the targets that count, by name: "loss", and whatever else, as "accuracy".
using Metrics = std::map<std::string, double>;

// The share of targets, int32 [...] or kIgnoreIndex, that are the first greatest of their logits [..., C]; NaN where
// none counts. Throws Error for other shapes.
double classification_accuracy(const Tensor& logits, const Tensor& targets);

// "loss", the mean cross-entropy, and "accuracy".
Metrics classification_metrics(const Tensor& logits, const Tensor& targets);

// The mean over all batches, each weighted as in a step: by the weights that its loss is a mean over
// (autograd/losses.hpp, "Weighted means"), or the targets that count. `batches` 0 means all. Nothing is recorded,
// dropout is off. NaN of an empty set; Error where no batch counts a target (Batch::counted) or all weights are 0.
double evaluate(const std::function<Tensor(const Batch&)>& loss, const EvaluationSet& set, Index batches = 0);
// The same of several numbers: each batch must have those of the first, the loss among them. The others are weighted by
// the targets that count. Of an empty set: nothing.
Metrics evaluate_metrics(const std::function<Metrics(const Batch&)>& metrics, const EvaluationSet& set,
                         Index batches = 0);

// ---- Progress ----

// What a person sees of a running training: one live line in a terminal, plain lines elsewhere.

struct ProgressState {
  Index step = 0, steps = 0;                   // steps: kUntilStopped where nobody knows
  double loss = 0;                             // of this step
  Metrics other_losses = {};                   // of its further updates, by their names
  std::optional<double> validation_loss = {};  // the last one
  Metrics validation_metrics = {};             // what else the last evaluation told
  std::optional<double> floor = {};            // what no model can go below
  double tokens_per_second = 0;   // of models of sequences
  double samples_per_second = 0;  // shown where there are no tokens
  double share_of_peak = 0;       // 0: not known
  double seconds_left = 0;
};

// At most 80 columns where `brief`, for the usual terminal.
std::string progress_line(const ProgressState& state, bool brief = false);

// Writes to `file`. In a terminal the line is redrawn in place at most ten times per second; elsewhere a line is
// printed at evaluations, at the first and last step, and whenever `quiet_seconds` have passed.
class Progress {
 public:
  explicit Progress(std::FILE* file, double quiet_seconds = 30);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(const ProgressState& state, bool important);
  void message(const std::string& text);  // a line of its own, above the live one
  void close();                           // ends the live line
  // Whether `file` is a pipe that nobody reads any more (where SIGPIPE does not end the program).
  bool pipe_is_broken() const { return broken_; }

 private:
  std::FILE* file_;
  bool terminal_, open_ = false, broken_ = false;
  double quiet_seconds_, last_ = -1e300;
  ProgressState state_;
  void draw();
  void flush();
};

// A step that was made, as the log tells it and callbacks see it.
struct RunStep {
  Index step = 0;  // 1, 2, ...
  double loss = 0, lr = 0, grad_norm = 0;
  double tokens_per_second = 0;   // 0: targets are not of tokens (Batch::has_token_targets)
  double samples_per_second = 0;  // Batch::samples
  // Of the updates after the first (Update): lr_NAME, and loss_NAME and grad_norm_NAME of those with a loss of their
  // own.
  Metrics others = {};
  std::optional<double> validation_loss = {};  // of an evaluation after this step
  Metrics validation_metrics = {};             // what else it told
  bool stop = false;                           // a callback may set it: the run saves, and ends after this step
};

// How a run begins where RunOptions::checkpoint names a file.
enum class RunStart {
  start,            // a new run; Error where the file exists
  resume,           // continues from the file; Error where it does not exist
  resume_or_start,  // continues from the file where it exists, or else a new run: for launchers that start a run again
  overwrite,        // a new run; the first checkpoint replaces the file
};

inline constexpr Index kUntilStopped = Index{1} << 40;  // RunOptions::steps of a run that something else ends

inline constexpr Index kMostShards = 1 << 16;

struct RunOptions {
  Index steps = 1000;
  // Ends the run, evaluated and saved as after the last step, when it has gone on for so long; a run that is resumed
  // has as much again. 0: never.
  double seconds = 0;
  // Batches of a shard, all held until the step ends; their gradients are averaged.
  Index accumulate = 1;
  // Parts of a step, which may be computed anywhere: shard s of step t has the batches from (t shards + s) accumulate
  // on, and numbers of its own for dropout. Their gradients are averaged, too, but summed in a fixed binary tree, for
  // which the step holds up to 1 + log2(shards) gradients of the model at a time.
  Index shards = 1;
  // Processes among which the run is divided, all of which call run() alike: each computes a part of the shards, of
  // which there must be as many or more, and of the evaluations, and keeps a part of the optimizers' state
  // (Optimizer::divide), after the run too. Weights, results and the checkpoint have the bits of one process. Rank 0
  // alone logs, shows progress and writes; a file to resume from is read by all. Callbacks are called on all, and must
  // do the same there. They must outlive the optimizers' last step. Null: this process is the whole run.
  Ranks* ranks = nullptr;
  // What ranks send each other, which is a part of the recipe as `shards` is. bfloat16 is half the bytes: each sum of
  // shards' gradients but the last is rounded to it, so that one shard's gradient is not, and so is what a step adds to
  // each weight, on any number of ranks. Weights and sums stay float32, and must be.
  DType communication_dtype = DType::float32;
  double grad_clip = 1;              // largest norm of the gradient of a loss; 0: no clipping
  std::uint64_t seed = 1;            // of batches and dropout
  DType precision = DType::float32;  // bfloat16: MatmulPrecision of steps and evaluations

  Index eval_every = 250;  // steps between evaluations; 0: only after the last step
  Index eval_batches = 0;  // batches an evaluation; 0: the whole set, which the last one always is
  bool find_nan = false;   // name the op of the first NaN (slow)
  // A moving average of the model's weights, updated after each step. Evaluations are of the averages then, and the
  // checkpoint keeps both; after the run the model has its own weights, and AveragedWeights shows it the averages.
  WeightAverage* average = nullptr;
  // The weights after each `keep_every` steps, of which it keeps the last ones: their mean is for after the run
  // (LastWeights::load_mean()), and changes neither training nor evaluations. A step is counted from the first of all,
  // whenever a run ends or goes on, and the weights are in the checkpoint, as one file that is written whole. So the
  // mean after any kills is that of a run without.
  LastWeights* last_weights = nullptr;
  Index keep_every = 0;  // steps; 0: checkpoint_every

  // Called after each step, and after each that ended with an evaluation; when the step is in the log, and before it is
  // in a checkpoint. What they draw from default_rng() changes no step. A run goes on to the same bits after a kill
  // where what they do to the model and what they ask for are functions of what they see.
  std::function<void(RunStep&)> after_step = {}, after_evaluation = {};

  // What `best` and `patience` go by: "loss" or another name of RunParts::metrics. The lowest is the best, or the
  // highest. Error with eval_batches that are not the whole set, as the last evaluation is of more than those before.
  std::string monitor = "loss";
  bool monitor_highest = false;
  Index patience = 0;  // ends the run after so many evaluations that are no better than the best; 0: never

  // Files that the data were read from, folders for all in them: none of them may be written by the run.
  std::vector<std::filesystem::path> inputs = {};
  // Empty: none. No other run may write it, which path.lock says. A save that fails (a full disk) is a warning, and the
  // file stays as it was; the next save is tried. Error at the end where the last one failed.
  std::filesystem::path checkpoint = {};
  Index checkpoint_every = 0;             // steps; 0: only at the end
  // A resumed run may have other steps, batches, rates and evaluations; the progress output says what differs, and the
  // rate continues without a jump unless the schedule's lr changed (Schedule::resume). It has the same model,
  // optimizer, seed and data.
  RunStart start = RunStart::start;
  // A new run starts from the model's values in this checkpoint; empty: from the model as it is. The run has its own
  // optimizer, schedule and history. Error with RunStart::resume.
  std::filesystem::path init = {};
  // The checkpoint that the run resumes from, or `init`, where the caller has read it; the run moves its contents out,
  // so that their memory is free for the steps. Error where the file does not exist any more, or was replaced.
  std::shared_ptr<Checkpoint> loaded = nullptr;
  // Resumes on data with another fingerprint than the checkpoint's, from their beginning. Evaluations on another
  // validation set are not compared with earlier ones.
  bool other_data = false;
  // A second checkpoint, of the step with the best evaluation; empty: none. Error where the file exists and is not the
  // best of the history that this run resumes. Where it does not exist, the best is that of evaluations from here on.
  std::filesystem::path best = {};
  // Kept in the checkpoint: configuration, tokenizer, ... Without zero bytes, and under names that the run does not use
  // itself: not step, seed, run_options, training_data, validation_data, optimizer_name, instruction_set, and no
  // section (model, optimizer, history, ...).
  std::map<std::string, std::string> texts = {};

  // JSON lines, one per step; empty: none. A resumed run goes on in it, or begins it where there is no such file. What
  // is in it stays until the first step was made. No other run may write it; it may also be a pipe or a terminal. A log
  // that is deleted, cut, or cannot be written for a while, is a warning: it gets the lines that it lacks, those that
  // were deleted with losses and evaluations only. Error at the end where it still lacks some.
  std::filesystem::path log = {};
  std::FILE* progress = nullptr;     // where to show progress; null: nowhere
  std::optional<double> floor = {};  // no model's loss on the whole evaluation set is below: shown beside that loss
  std::optional<double> eval_floor = {};  // the same of its first eval_batches, for the evaluations that see only them
  // Above 0: shows the share of peak_flops(precision), which is measured when the run has trained for a second: a short
  // one would spend most of its time on that. Measured again where the run is faster.
  double flops_per_token = 0;
  // Made on this thread before the run; a step of it is one of the run, with all that is done between two.
  Profile* profile = nullptr;
  // Ctrl-C, SIGTERM, SIGHUP and a pipe of `progress` that nobody reads any more finish the step, save and return; a
  // second signal kills. One that was ignored before the run stays ignored.
  bool handle_interrupt = false;
};

struct RunHistory {
  std::vector<double> losses = {};                               // of step 1, 2, ...
  std::vector<std::pair<Index, double>> validation_losses = {};  // after these steps
  std::vector<Metrics> validation_metrics = {};  // other metrics of these evaluations; may be empty
  std::map<std::string, std::vector<double>> other_losses = {};  // of updates with a loss of their own, by their names
};

struct RunResult {
  Index steps = 0;  // done in all
  Index resumed_from = 0;
  bool interrupted = false;  // before the last step, by a signal
  bool stopped = false;      // before the last step, by a callback or as patience or time was at its end
  Index best_step = 0;       // after which the evaluation was the best by RunOptions::monitor; 0: none was
  RunHistory history = {};
  std::optional<double> validation_loss = {};  // the last
  Metrics validation_metrics = {};             // of the same evaluation
  std::vector<std::string> warnings = {};      // of saves that failed and of a log that was damaged, also in `progress`
  // "nats per token" or "nats" where the loss is a cross-entropy, and a step was made; else empty.
  std::string loss_unit = {};
};

// One optimizer of a run, and what it follows. A step does all updates of the run in order.
struct Update {
  Optimizer& optimizer;
  Schedule& schedule;
  // Mean over the batch's counted targets, or by weights (autograd/losses.hpp). Empty: the loss of the update before,
  // with which this one shares its gradients; of the first one, the model's.
  std::function<Tensor(const Batch&)> loss = {};
  std::string name = {};  // for log and checkpoint, where it is not the first; empty: its number, from 1
};

// What is trained. run() below fills it from a model.
struct RunParts {
  std::function<void(Checkpoint&)> store = {};       // puts the model's values into a checkpoint
  std::function<void(const Checkpoint&)> load = {};  // takes them out
  std::function<Tensor(const Batch&)> loss = {};     // mean over the batch's counted targets or by weights: the model's
  std::vector<Update> updates = {};
  Dataset data = {};
  EvaluationSet validation = {};
  // Means over the targets of an evaluation batch: "loss", and others by name, which go to the progress line,
  // the log and the checkpoint. Empty: {"loss", loss(batch)}.
  std::function<Metrics(const Batch&)> metrics = {};
};

// Throws Error, on a run of several ranks on all of them, where these differ in their program, options, model or data.
// Throws Error for options out of range, names that no checkpoint can hold, data or checkpoint that cannot be read or
// written or that another run writes, a last save that failed, a checkpoint that exists or is missing against
// RunOptions::start, one of another model or other data, with an average or last weights where this run has none or the
// reverse, a step or an evaluation none of whose targets counts, and a loss that is not finite. FileError for what
// check_files() refuses of its files.
RunResult run(RunParts parts, const RunOptions& options);

// The batches that the run of a checkpoint has read, by their sizes, oldest first: for the data set's continued().
std::vector<BatchesRead> batches_read(const Checkpoint& checkpoint);

namespace detail {
// Error where a parameter that is not frozen has no optimizer, or two of the run.
void check_trained(const std::vector<NamedParameter>& parameters, const std::vector<Update>& updates);
}  // namespace detail

// Error for a parameter of the model that is not frozen and that no optimizer trains, or two of the updates. The loss
// of evaluations is that of the first update, or else the model's own: loss(batch) where it has that, or loss(inputs,
// targets). `metrics`: RunParts. Errors of what loss(inputs, targets) does with a batch itself name the line that
// called run(), those behind it the layer.
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
  return run({.store = [&model](Checkpoint& c) { store_model(c, model); },
              .load = [&model](const Checkpoint& c) { load_model(c, model); },
              .loss = std::move(loss),
              .updates = std::move(updates),
              .data = std::move(data),
              .validation = std::move(validation),
              .metrics = std::move(metrics)},
             options);
}

// The same with one optimizer, and the model's own loss unless `loss` is given.
template <class M>
RunResult run(M& model, Optimizer& optimizer, Schedule& schedule, Dataset data, EvaluationSet validation,
              const RunOptions& options, std::function<Tensor(const Batch&)> loss = {},
              std::function<Metrics(const Batch&)> metrics = {}, Where where = Where::current()) {
  return run(model, std::vector<Update>{{optimizer, schedule, std::move(loss)}}, std::move(data), std::move(validation),
             options, std::move(metrics), where);
}

}  // namespace heed

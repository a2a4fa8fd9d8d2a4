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

// Means over the counted targets, by name: "loss" and others, such as "accuracy".
using Metrics = std::map<std::string, double>;

// The share of counted targets that equal the argmax of their logits (the first of equal logits). logits [..., C],
// targets int32 [...]; targets that are kIgnoreIndex do not count. NaN if none counts. Throws Error for other shapes
// and dtypes.
double classification_accuracy(const Tensor& logits, const Tensor& targets);

// "loss", the mean cross-entropy, and "accuracy", as above.
Metrics classification_metrics(const Tensor& logits, const Tensor& targets);

// The mean loss over the first `batches` batches of the set; 0: over all. Each batch is weighted as in a step: by the
// weights that its loss is a mean over (autograd/losses.hpp, "Weighted means"), or by its counted targets. No tape
// records, and dropout is off. NaN for an empty set. Throws Error if no batch has counted targets (Batch::counted) or
// all weights are 0.
double evaluate(const std::function<Tensor(const Batch&)>& loss, const EvaluationSet& set, Index batches = 0);
// The means of several metrics. Each batch must give the same metrics, among them "loss". Other metrics are weighted by
// the counted targets. Empty for an empty set. Throws Error as evaluate().
Metrics evaluate_metrics(const std::function<Metrics(const Batch&)>& metrics, const EvaluationSet& set,
                         Index batches = 0);

// ---- Progress ----

// The values that a progress line shows.
struct ProgressState {
  Index step = 0, steps = 0;                   // steps: kUntilStopped if unknown
  double loss = 0;                             // of this step
  Metrics other_losses = {};                   // of the further updates of the step, by name
  std::optional<double> validation_loss = {};  // of the last evaluation
  Metrics validation_metrics = {};             // other metrics of the last evaluation
  std::optional<double> floor = {};            // lower bound of the validation loss
  double tokens_per_second = 0;                // for models of sequences
  double samples_per_second = 0;               // shown if tokens_per_second is 0
  double share_of_peak = 0;                    // 0: unknown
  double seconds_left = 0;
};

// The text of a progress line. `brief`: shortened for a terminal of 80 columns.
std::string progress_line(const ProgressState& state, bool brief = false);

// Writes the progress of a run to `file`. In a terminal, one line is redrawn in place, at most ten times per second.
// Elsewhere, a line is printed for each important update and when `quiet_seconds` have passed since the last line.
class Progress {
 public:
  explicit Progress(std::FILE* file, double quiet_seconds = 30);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(const ProgressState& state, bool important);  // important: always shown
  void message(const std::string& text);                    // prints its own line, above the progress line
  void close();                                             // ends the progress line
  // Whether `file` is a pipe without a reader. This is noticed only if SIGPIPE does not end the program.
  bool pipe_is_broken() const { return broken_; }

 private:
  std::FILE* file_;
  bool terminal_, open_ = false, broken_ = false;
  double quiet_seconds_, last_ = -1e300;
  ProgressState state_;
  void draw();
  void flush();
};

// A finished step, as the log and callbacks get it.
struct RunStep {
  Index step = 0;  // 1, 2, ...
  double loss = 0, lr = 0, grad_norm = 0;
  double tokens_per_second = 0;   // 0: targets are not of tokens (Batch::has_token_targets)
  double samples_per_second = 0;  // Batch::samples()
  // Numbers of the updates after the first (Update): lr_NAME, and for an update with its own loss also loss_NAME and
  // grad_norm_NAME.
  Metrics others = {};
  std::optional<double> validation_loss = {};  // of an evaluation after this step
  Metrics validation_metrics = {};             // other metrics of that evaluation
  bool stop = false;                           // set by a callback to end the run after this step, with a checkpoint
};

// How a run begins if RunOptions::checkpoint names a file.
enum class RunStart {
  start,            // a new run; throws Error if the file exists
  resume,           // continues from the file; throws Error if it does not exist
  resume_or_start,  // continues from the file if it exists, else a new run; for launchers that restart runs
  overwrite,        // a new run; the first checkpoint replaces the file
};

inline constexpr Index kUntilStopped = Index{1} << 40;  // RunOptions::steps of a run without a last step

inline constexpr Index kMostShards = 1 << 16;  // max RunOptions::shards

// Options of a run.
struct RunOptions {
  Index steps = 1000;  // total number of steps, with those before a resume
  // Time limit of this run. When it has passed, the run ends as after its last step, with an evaluation and a
  // checkpoint. A resumed run has the whole time again. 0: no limit.
  double seconds = 0;
  // Batches per shard. All are in memory until the step ends. Their gradients are averaged.
  Index accumulate = 1;
  // Parts of a step, which different ranks may compute. Shard s of step t reads `accumulate` batches, from number
  // (t shards + s) accumulate on, and has its own random numbers for dropout. Gradients of shards are averaged, too,
  // but are summed in a fixed binary tree. A step holds up to 1 + log2(shards) gradients of the model at a time.
  Index shards = 1;
  // The processes among which the run is divided. All call run() with the same arguments. Each rank computes a part of
  // the shards and of the evaluations, and keeps a part of the optimizers' state (Optimizer::divide), also after the
  // run. There must be at least one shard per rank. Weights, results and the checkpoint have the same bits as with one
  // process. Only rank 0 logs, shows progress and writes files; all ranks read the file to resume from. Callbacks are
  // called on all ranks and must do the same there. The ranks must outlive the optimizers' last step. Null: this
  // process is the whole run.
  Ranks* ranks = nullptr;
  // The dtype of the data that ranks exchange. Like `shards`, it changes the results, with any number of ranks.
  // bfloat16 halves the bytes: each gradient and each sum of gradients in the tree is rounded to bfloat16, except the
  // sum over all shards. So a gradient is not rounded if there is one shard. The change that a step makes to each
  // weight is rounded, too. Weights must be float32, and weights and sums stay float32.
  DType communication_dtype = DType::float32;
  double grad_clip = 1;              // max norm of the gradient of a loss; 0: no clipping
  std::uint64_t seed = 1;            // of batches and dropout
  DType precision = DType::float32;  // MatmulPrecision of steps and evaluations: float32 or bfloat16

  Index eval_every = 250;  // steps between evaluations; 0: only after the last step
  Index eval_batches = 0;  // batches per evaluation; 0: the whole set, which the last evaluation always reads
  bool find_nan = false;   // names the op that made the first NaN (slow)
  // A moving average of the model's weights, updated after each step. Evaluations then use the averages, and the
  // checkpoint stores both. After the run, the model has its own weights; AveragedWeights swaps in the averages.
  WeightAverage* average = nullptr;
  // Keeps the weights after every `keep_every` steps, the last LastWeights::count() of them. Their mean is for use
  // after the run (LastWeights::load_mean()) and changes neither training nor evaluations. Which steps are kept depends
  // only on their numbers, and the kept weights are part of the checkpoint file. So a run that was killed and resumed
  // ends with the same mean.
  LastWeights* last_weights = nullptr;
  Index keep_every = 0;  // steps between kept weights; 0: checkpoint_every

  // Called after each step, and after each step with an evaluation. The step is then in the log, but not yet in a
  // checkpoint. Numbers that they draw from default_rng() change no step. A run that was killed and resumed has the
  // same bits if the callbacks are pure functions of the step and the model, in their changes of the model and their
  // requests to stop.
  std::function<void(RunStep&)> after_step = {}, after_evaluation = {};

  // The metric that `best` and `patience` compare: "loss" or another name of RunParts::metrics. The lowest value is the
  // best, or with monitor_highest the highest. With `best` or `patience`, throws Error if there is no validation set,
  // or if eval_batches is less than the whole set, because the last evaluation reads the whole set.
  std::string monitor = "loss";
  bool monitor_highest = false;
  Index patience = 0;  // ends the run after this number of evaluations without a new best; 0: never

  // Files that the data were read from; a folder means all files in it. The run refuses to write to any of them.
  std::vector<std::filesystem::path> inputs = {};
  // File of the checkpoint; empty: none. Throws Error if another run writes it (the lock is path.lock). A save that
  // fails, as on a full disk, is a warning: the file keeps its content, and the next save is tried. If the last save
  // fails, the run throws Error at its end.
  std::filesystem::path checkpoint = {};
  Index checkpoint_every = 0;  // steps between saves; 0: only at the end
  // A resumed run must have the same model, optimizer, seed and data. It may have other steps, batches, learning rates
  // and evaluations; the progress output lists the differences. The learning rate continues without a jump unless the
  // schedule's lr changed (Schedule::resume).
  RunStart start = RunStart::start;
  // A checkpoint with the initial weights of a new run; empty: the run starts from the model's current weights. The run
  // has its own optimizer, schedule and history. Throws Error with RunStart::resume.
  std::filesystem::path init = {};
  // The content of the checkpoint to resume from, or of `init`, if the caller has read it. The run moves the content
  // out, so that its memory is free during the steps. Throws Error if the file does not exist any more or was replaced.
  std::shared_ptr<Checkpoint> loaded = nullptr;
  // Permits a resume on data with another fingerprint than in the checkpoint. The data are then read from their
  // beginning. Evaluations on another validation set are not compared with earlier ones.
  bool other_data = false;
  // File of a second checkpoint, of the step with the best evaluation; empty: none. Throws Error if the file exists and
  // is not the best checkpoint of the resumed history. If it does not exist, a resumed run compares only its own
  // evaluations.
  std::filesystem::path best = {};
  // Texts for the checkpoint: configuration, tokenizer, ... They contain no zero bytes. Names that the run itself uses
  // are not allowed: step, seed, run_options, training_data, validation_data, optimizer_name, instruction_set, and
  // sections (model, optimizer, history, ...).
  std::map<std::string, std::string> texts = {};

  // File of the log, one JSON object per line and step; empty: none. It may be a pipe or a terminal. A resumed run
  // continues the log, or begins it if the file does not exist. The old content is kept until the first step is done.
  // Throws Error if another run writes the log. A log that was deleted or cut, or that cannot be written for a while,
  // is a warning. The missing lines are written later; those that were deleted then have losses and evaluations only.
  // If lines are still missing, the run throws Error at its end.
  std::filesystem::path log = {};
  std::FILE* progress = nullptr;     // stream for the progress output; null: none
  std::optional<double> floor = {};  // lower bound of the loss on the whole evaluation set, shown next to that loss
  std::optional<double> eval_floor = {};  // the same for evaluations of the first eval_batches batches
  // Above 0: shows the share of peak_flops(precision). The peak is measured after one second of training, because the
  // measurement would take most of the time of a shorter run. It is measured again if the run is faster.
  double flops_per_token = 0;
  // A profile of this thread, made before the run. Each step of the run, with all work until the next step, is one step
  // of the profile.
  Profile* profile = nullptr;
  // Ctrl-C, SIGTERM, SIGHUP and a `progress` pipe without a reader end the run after the current step, with a
  // checkpoint. A second signal kills the program. Signals that were ignored before the run stay ignored.
  bool handle_interrupt = false;
};

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
  Index best_step = 0;       // step of the best evaluation by RunOptions::monitor; 0: none
  RunHistory history = {};
  std::optional<double> validation_loss = {};  // of the last evaluation
  Metrics validation_metrics = {};             // other metrics of that evaluation
  std::vector<std::string> warnings = {};      // failed saves and damage of the log, as in the progress output
  // "nats per token" or "nats" if the loss is a cross-entropy and a step was made; else empty.
  std::string loss_unit = {};
};

// One optimizer of a run with its schedule and loss. A step does all updates of the run in order.
struct Update {
  Optimizer& optimizer;
  Schedule& schedule;
  // Mean over the batch's counted targets, or a weighted mean (autograd/losses.hpp). Empty: the update shares the loss
  // and the gradients of the update before it. Empty in the first update: the model's loss.
  std::function<Tensor(const Batch&)> loss = {};
  std::string name = {};  // name in the log and the checkpoint, except for the first; empty: its number, from 1
};

// The parts of a run. The functions run() for a model, below, fill them.
struct RunParts {
  std::function<void(Checkpoint&)> store = {};       // stores the model's values in a checkpoint
  std::function<void(const Checkpoint&)> load = {};  // loads the model's values from a checkpoint
  std::function<Tensor(const Batch&)> loss = {};     // the model's; as Update::loss
  std::vector<Update> updates = {};
  Dataset data = {};
  EvaluationSet validation = {};
  // Means over the targets of an evaluation batch: "loss" and others by name, which the progress line, the log and the
  // checkpoint show. Empty: {"loss", loss(batch)}.
  std::function<Metrics(const Batch&)> metrics = {};
};

// Trains as the options say. Throws Error on all ranks if ranks differ in their program, options, model or data. Also
// throws Error for
// - options out of range, and names that no checkpoint can store
// - data or a checkpoint that cannot be read or written, or that another run writes, and a last save that failed
// - a checkpoint that exists or is missing, against RunOptions::start
// - a checkpoint of another model or of other data
// - a checkpoint with an average or last weights if this run has none, or the reverse
// - a step or an evaluation without counted targets, and a loss that is not finite
// Throws FileError for files that check_files() refuses.
RunResult run(RunParts parts, const RunOptions& options);

// The batches that the run of a checkpoint has read, grouped by their limits, oldest first, for continued().
std::vector<BatchesRead> batches_read(const Checkpoint& checkpoint);

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
  return run({.store = [&model](Checkpoint& c) { store_model(c, model); },
              .load = [&model](const Checkpoint& c) { load_model(c, model); },
              .loss = std::move(loss),
              .updates = std::move(updates),
              .data = std::move(data),
              .validation = std::move(validation),
              .metrics = std::move(metrics)},
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

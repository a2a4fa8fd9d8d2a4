// The options of a run, and the finished step that its callbacks get.
//
// Example:
//
//   RunOptions options{.steps = 100, .eval_every = 20, .patience = 3};
//   options.after_step = [](RunStep& s) { s.stop = s.loss < 0.01; };
//   options.checkpoint = "model.h5";
//   options.start = RunStart::resume_or_start;
#pragma once
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <heed/core/dtype.hpp>
#include <heed/data/checkpoint.hpp>
#include <heed/optim/optimizers/average.hpp>
#include <heed/optim/run/evaluation.hpp>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace heed {

class Profile;  // optim/profile/profile.hpp
class Ranks;    // optim/ranks/ranks.hpp

// A finished step, as the log and callbacks get it.
struct RunStep {
  Index step = 0;  // 1, 2, ...
  double loss = 0, lr = 0, grad_norm = 0;  // grad_norm: before clipping
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

inline constexpr Index kMaxShards = 1 << 16;  // max RunOptions::shards

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
  // the shards and of the evaluations, and keeps a part of the optimizers' state, also after the run. Then only another
  // run with these ranks can make steps of the optimizers. There must be at least one shard per rank. Weights, results
  // and the checkpoint have the same bits as with one process. Only rank 0 logs, shows progress and writes files; all
  // ranks read the file to resume from. Callbacks are called on all ranks and must do the same there. Null: this
  // process is the only rank.
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

}  // namespace heed

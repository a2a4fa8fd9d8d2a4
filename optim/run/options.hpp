// The options of a run, in groups, and the finished step that its callbacks get.
//
// Example:
//
//   RunOptions options{.steps = 100,
//                      .evaluation = {.every = 20, .patience = 3},
//                      .checkpoint = {.path = "model.h5", .start = RunStart::resume_or_start}};
//   options.after_step = [](RunStep& s) { s.stop = s.loss < 0.01; };
#pragma once
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <heed/core/dtype.hpp>
#include <heed/data/checkpoint.hpp>
#include <heed/optim/optimizers/average.hpp>
#include <heed/optim/ranks/ranks.hpp>
#include <heed/optim/run/evaluation.hpp>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace heed {

class Profile;  // optim/profile/profile.hpp

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

// How a run with a checkpoint begins.
enum class RunStart {
  start,            // a new run; throws Error if the checkpoint exists
  resume,           // continues from the checkpoint; throws Error if it does not exist
  resume_or_start,  // continues from the checkpoint if it exists, else a new run; for launchers that restart runs
  overwrite,        // a new run; its first checkpoint replaces the file
};

inline constexpr Index kUntilStopped = Index{1} << 40;  // RunOptions::steps of a run without a last step

inline constexpr Index kMaxShards = 1 << 16;  // max RunOptions::shards

// When a run is evaluated, and which evaluation is the best.
//
// Throws Error if `patience` or CheckpointOptions::best is given without a validation set, or with `batches` less than
// the whole set: both compare all evaluations, and the last one reads the whole set.
struct EvaluationOptions {
  Index every = 250;                         // steps between evaluations; 0: only after the last step
  Index batches = 0;                         // batches per evaluation, except for the last; 0: the whole set
  std::string monitor = "loss";              // metric of the best evaluation: "loss" or a name in RunParts::metrics
  bool maximize = false;                     // the highest value of the metric is the best; false: the lowest
  Index patience = 0;                        // evaluations without a new best after which the run ends; 0: no limit
  std::optional<double> floor = {};          // lower bound of the loss on the whole set; the progress line shows it
  std::optional<double> batches_floor = {};  // the same for evaluations of the first `batches` batches
};

// The checkpoint of a run, and how the run begins.
//
// `path` and `best`: Throws Error if another run writes them (the lock is path.lock). A save that fails, as on a full
// disk, is a warning: the file keeps its content, and the next save is tried. If the last save fails, the run throws
// Error at its end. Throws Error if `best` exists and is not the best checkpoint of the resumed history. If it does not
// exist, a resumed run compares only its own evaluations.
//
// `start`: a resumed run must have the same model, optimizer, seed and data. It may have other steps, batches, learning
// rates and evaluations; the progress output lists the differences. The learning rate continues without a jump unless
// the schedule's lr changed (Schedule::resume). With `other_data`, the run reads other data from their beginning, and
// does not compare evaluations on another validation set with earlier ones.
//
// `init`: the new run has its own optimizer, schedule and history. Throws Error with RunStart::resume.
//
// `loaded`: the run moves the content out, so that its memory is free during the steps. Throws Error if the file was
// deleted or replaced after it was read.
//
// `trainable_only`: the checkpoint has the parameters that are not frozen, such as adapters, and a hash of the frozen
// ones. A run that resumes must have the same frozen weights, which the program loads before. Throws Error for others,
// and for a checkpoint of a whole model.
//
// `texts` contain no zero bytes. Names that the run itself uses are not allowed: step, seed, run_options,
// training_data, validation_data, optimizer_name, instruction_set, base_hash, and sections (model, optimizer, history,
// ...).
struct CheckpointOptions {
  std::filesystem::path path = {};                // file of the checkpoint; empty: none
  Index every = 0;                                // steps between saves; 0: only at the end
  std::filesystem::path best = {};                // file of a second checkpoint, of the best evaluation; empty: none
  RunStart start = RunStart::start;               // new run, or continuation of `path`
  std::filesystem::path init = {};                // checkpoint with the initial weights; empty: the model's own
  std::shared_ptr<Checkpoint> loaded = nullptr;   // content of the file to resume or of `init`, if read already
  bool trainable_only = false;                    // leaves out frozen weights
  bool other_data = false;                        // permits a resume on data with another fingerprint
  std::map<std::string, std::string> texts = {};  // texts to store: configuration, tokenizer, ...
};

// What a run writes and shows about its steps.
//
// The log may be a pipe or a terminal. A resumed run continues the log, or begins it if the file does not exist. The
// old content is kept until the first step is done. Throws Error if another run writes the log. A log that was deleted
// or cut, or that cannot be written for a while, is a warning. The missing lines are written later; those that were
// deleted then have losses and evaluations only. If lines are still missing, the run throws Error at its end.
//
// `flops_per_token`: the peak of the machine is measured after one second of training, because the measurement would
// take most of the time of a shorter run. It is measured again if the run is faster.
struct OutputOptions {
  std::filesystem::path log = {};  // file of the log, one JSON object per line and step; empty: none
  std::FILE* progress = nullptr;   // stream for the progress output; null: none
  double flops_per_token = 0;      // above 0: the progress line shows the share of peak_flops(precision)
  Profile* profile = nullptr;      // profile of this thread; a step of the run is a step of the profile
};

// Options of a run.
//
// `seconds`: when the time has passed, the run ends as after its last step, with an evaluation and a checkpoint. A
// resumed run has the whole time again.
//
// `shards`: shard s of step t reads `accumulate` batches, from number (t shards + s) accumulate on, and has its own
// random numbers for dropout. Gradients of shards are summed in a fixed binary tree. A step holds its batches and up to
// 1 + log2(shards) gradients of the model in memory.
//
// `average`: the checkpoint stores the averages and the weights. After the run, the model has its own weights;
// AveragedWeights swaps in the averages.
//
// `last_weights`: keeps the weights after every `keep_every` steps, the last LastWeights::count() of them, also in the
// checkpoint. LastWeights::load_mean() loads their mean after the run. Which steps are kept depends only on their
// numbers, so a run that was killed and resumed ends with the same mean.
//
// Callbacks: the step is in the log, but not yet in a checkpoint. Numbers that they draw from default_rng() change no
// step. A run that was killed and resumed has the same bits if the callbacks are pure functions of the step and the
// model, in their changes of the model and their requests to stop.
//
// `handle_interrupt`: Ctrl-C, SIGTERM, SIGHUP and a `progress` pipe without a reader end the run with a checkpoint. A
// second signal kills the program. Signals that were ignored before the run stay ignored.
struct RunOptions {
  Index steps = 1000;                              // total number of steps, with those before a resume
  double seconds = 0;                              // time limit of this run; 0: none
  Index accumulate = 1;                            // batches per shard; their gradients are averaged
  Index shards = 1;                                // parts of a step, which different ranks may compute
  double grad_clip = 1;                            // max norm of the gradient of a loss; 0: no clipping
  std::uint64_t seed = 1;                          // of batches and dropout
  DType precision = DType::float32;                // MatmulPrecision of steps and evaluations: float32 or bfloat16
  bool find_nan = false;                           // names the op that made the first NaN (slow)
  WeightAverage* average = nullptr;                // moving average, updated after each step; evaluations use it
  LastWeights* last_weights = nullptr;             // keeps weights of late steps, for their mean
  Index keep_every = 0;                            // steps between kept weights; 0: checkpoint.every
  std::vector<std::filesystem::path> inputs = {};  // files or folders of the data; the run refuses to write to them

  EvaluationOptions evaluation = {};  // when the run is evaluated, and which evaluation is the best
  CheckpointOptions checkpoint = {};  // the checkpoint, and how the run begins
  OutputOptions output = {};          // the log and the progress line
  RankOptions ranks = {};             // the processes that share the run (optim/ranks/ranks.hpp)

  std::function<void(RunStep&)> after_step = {};        // called after each step
  std::function<void(RunStep&)> after_evaluation = {};  // called after each step with an evaluation
  bool handle_interrupt = false;  // a signal or a closed pipe of `progress` ends the run after the current step
};

}  // namespace heed

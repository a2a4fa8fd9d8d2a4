// The training loop: checks the options, and orders steps, evaluations, callbacks and saves.
#include <algorithm>
#include <heed/autograd/matmul.hpp>
#include <heed/core/clock.hpp>
#include <heed/core/parallel.hpp>
#include <heed/core/profiler.hpp>
#include <heed/data/files.hpp>
#include <heed/optim/profile/profile.hpp>
#include <heed/optim/run/checkpoint.hpp>
#include <heed/optim/run/history.hpp>
#include <heed/optim/run/interrupt.hpp>
#include <heed/optim/run/log.hpp>
#include <heed/optim/run/metrics.hpp>
#include <heed/optim/run/properties.hpp>
#include <heed/optim/run/run.hpp>
#include <heed/optim/run/run_progress.hpp>
#include <heed/optim/run/steps.hpp>

namespace heed {
namespace {

// For rank 0, which alone writes files.
void check_files_of_run(const RunOptions& o) {
  const CheckpointOptions& c = o.checkpoint;
  std::vector<FileUse> files = {{"checkpoint", c.path, FileRole::checkpoint},
                                {"best", c.best, FileRole::checkpoint},
                                {"log", o.output.log, FileRole::log},
                                {"init", c.init, FileRole::input}};
  for (const std::filesystem::path& file : o.inputs) files.push_back({"an input", file, FileRole::input});
  check_files("run", files);
  for (const std::filesystem::path& file : {c.path, c.best})
    if (!file.empty()) check_place("save_checkpoint", file);
}

void check_options(const RunOptions& o, Index batches) {
  const EvaluationOptions& e = o.evaluation;
  const CheckpointOptions& c = o.checkpoint;
  require(o.steps >= 0, "run: steps is ", o.steps, "; it must be 0 or more");
  require(o.seconds >= 0, "run: seconds is ", o.seconds, "; it must be 0 (no limit) or more");
  require(o.accumulate >= 1, "run: accumulate is ", o.accumulate, "; it must be 1 or more");
  require(o.shards >= 1 && o.shards <= kMaxShards, "run: shards is ", o.shards, "; it must be from 1 to ", kMaxShards);
  require(o.grad_clip >= 0, "run: grad_clip is ", o.grad_clip, "; it must be 0 (no clipping) or more");
  require(e.every >= 0 && e.batches >= 0 && c.every >= 0, "run: evaluation.every is ", e.every, ", evaluation.batches ",
          e.batches, " and checkpoint.every ", c.every, "; they must be 0 or more");
  require(c.every == 0 || !c.path.empty(), "run: checkpoint.every is ", c.every, " but checkpoint.path is empty");
  require(e.patience >= 0, "run: evaluation.patience is ", e.patience, "; it must be 0 (none) or more");
  if (detail::ranks_of(o.ranks).rank() == 0) check_files_of_run(o);
  require(o.average == nullptr || !o.average->swapped(),
          "run: the averages are swapped into the model; swap back before the run");
  require(o.keep_every >= 0, "run: keep_every is ", o.keep_every, "; it must be 0 (checkpoint.every) or more");
  require(o.last_weights == nullptr || detail::keep_every(o) > 0, "run: last_weights is given, but keep_every and ",
          "checkpoint.every are 0; one of them must be the number of steps between kept weights");
  for (const auto& [name, text] : c.texts)
    require((c.path.empty() && c.best.empty()) || !detail::is_text_of_run(name), "run: a text is named ", name,
            ", which the run itself stores in the checkpoint; use another name");
  if (c.best.empty() && e.patience == 0) return;
  require(batches > 0, "run: checkpoint.best or evaluation.patience is given but there is nothing to evaluate on; ",
          "give a validation set");
  require(e.batches == 0 || e.batches >= batches, "run: evaluation.batches is ", e.batches, " of ", batches,
          ", but checkpoint.best and evaluation.patience compare all evaluations, and the last one reads the whole ",
          "set; give a smaller set or set evaluation.batches to 0");
}

// A run, from its options to its result.
class Run {
 public:
  Run(RunParts parts, const RunOptions& options)
      : o_(options),
        run_(std::move(parts), options),
        checkpoint_(run_),
        resumed_(begin()),
        log_(run_.of_first(o_.output.log), run_.history.losses),
        steps_(run_),
        progress_(run_) {
    if (!run_.ranks.is_alone()) detail::require_same(run_.ranks, detail::properties_of(run_));
  }

  ~Run() { run_.ranks.stop(); }  // exchanges of a step that failed may use the memory of steps_
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  RunResult go();

 private:
  const RunOptions& o_;
  detail::RunState run_;
  detail::RunCheckpoint checkpoint_;
  Index resumed_;  // steps done before this run
  detail::RunLog log_;
  detail::RunSteps steps_;
  detail::RunProgress progress_;
  double begin_ = detail::seconds_now();
  bool out_of_time_ = false, stop_requested_ = false;  // on any rank
  std::optional<detail::InterruptScope> interrupt_;    // set by go() with RunOptions::handle_interrupt
  std::string checkpoint_error_, best_error_;          // of the last save; empty if it was written
  std::vector<std::string> warnings_;

  double seconds() const { return detail::seconds_now() - begin_; }
  // Whether this rank finds that the run must end. Rank 0 measures the time.
  bool is_out_of_time() const { return run_.ranks.is_first() && o_.seconds > 0 && seconds() >= o_.seconds; }
  bool is_stop_requested() const {
    return o_.handle_interrupt && (interrupt_->requested() || progress_.pipe_is_broken());
  }
  bool is_last() const { return run_.done == o_.steps || out_of_time_; }
  bool is_stuck() const;
  Index best_evaluation() const { return detail::best_evaluation(run_.history, o_.evaluation, run_.best_from); }

  Index begin();
  RunStep step();
  void evaluate_into(RunStep& s);
  void write_log(const RunStep& s);
  // Returns whether the file was written. If not, `error` is the reason, on all ranks.
  bool save(const std::filesystem::path& file, std::string& error);
  void sync_log();
  void warn(const std::string& text);  // does nothing for an empty text
  void check_saved() const;
  RunResult result(bool stopped);
};

// Returns the number of steps done before this run.
Index Run::begin() {
  std::vector<Optimizer*> optimizers;  // each once
  for (const Update& u : run_.parts.updates)
    if (std::ranges::find(optimizers, &u.optimizer) == optimizers.end()) optimizers.push_back(&u.optimizer);
  run_.ranks.divide(optimizers);
  return checkpoint_.begin();
}

RunStep Run::step() {
  RunStep made = steps_.make([this] { return detail::RunEnd{is_stop_requested(), is_out_of_time()}; });
  out_of_time_ = run_.ranks.agreed(steps_.end_of_any().out_of_time, is_out_of_time());
  return made;
}

void Run::warn(const std::string& text) {
  if (text.empty()) return;
  progress_.message("warning: " + text);
  warnings_.push_back(text);
}

void Run::sync_log() { warn(log_.sync(run_.history)); }

bool Run::save(const std::filesystem::path& file, std::string& error) {
  if (file.empty()) return true;
  const detail::ProfileScope scope("checkpoint");
  sync_log();  // a resumed run needs all lines up to the checkpoint
  error = checkpoint_.save(file);
  if (!error.empty() && run_.done < o_.steps)
    warn("step " + std::to_string(run_.done) + " could not be saved: " + error + "; the run continues");
  return error.empty();
}

// Throws Error if the last save failed or lines of the log are missing. While the run continues, these are warnings.
void Run::check_saved() const {
  std::string what = log_.error();
  if (!best_error_.empty()) what = "the best evaluation could not be saved: " + best_error_;
  if (!checkpoint_error_.empty()) what = "the last step could not be saved: " + checkpoint_error_;
  const bool failed = run_.ranks.any(!what.empty());
  if (failed) fail("run: ", what.empty() ? "rank 0 could not write its files" : what);
}

// Writes the line of a step. If a pipe has lost its reader, saves a checkpoint before the Error ends the run.
void Run::write_log(const RunStep& s) {
  const detail::ProfileScope scope("log");
  try {
    warn(log_.write(s, run_.history));
  } catch (const Error&) {
    if (log_.is_stream() && run_.ranks.is_alone())
      save(o_.checkpoint.path, checkpoint_error_);  // saving needs all ranks
    throw;
  }
}

void Run::evaluate_into(RunStep& s) {
  const bool last = is_last();
  const RunParts& parts = run_.parts;
  const EvaluationOptions& e = o_.evaluation;
  if (parts.validation.size() == 0 || !(last || (e.every > 0 && run_.done % e.every == 0))) return;
  const MatmulPrecision precision(o_.precision);
  const auto loss_alone = [&parts](const Batch& b) {
    const Tensor loss = parts.loss(b);
    detail::check_loss(loss);
    return Metrics{{"loss", loss.item()}};
  };
  const Index batches = last || e.batches >= parts.validation.size() ? 0 : e.batches;
  progress_.evaluated(batches == 0);
  {
    std::optional<AveragedWeights> averaged;
    if (o_.average != nullptr) averaged.emplace(*o_.average);
    s.validation_metrics =
        detail::evaluate_metrics(parts.metrics ? parts.metrics : loss_alone, parts.validation, batches, run_.ranks);
  }
  detail::check_monitor(e.monitor, s.validation_metrics);
  s.validation_loss = s.validation_metrics.extract("loss").mapped();
  for (const Update& u : parts.updates) u.schedule.observe(*s.validation_loss);
  run_.history.validation_losses.emplace_back(run_.done, *s.validation_loss);
  run_.history.validation_metrics.push_back(s.validation_metrics);
  if (o_.checkpoint.path.empty()) return;
  Checkpoint c;  // checks the names of the metrics now, not at the next save
  detail::store_history(run_.history, c);
  check_names("run", c);
}

// Whether patience is exhausted. A function of the history, so a run that has ended for this reason does not continue
// when resumed.
bool Run::is_stuck() const {
  const auto& losses = run_.history.validation_losses;
  const Index before = std::ranges::count_if(losses, [&](const auto& e) { return e.first <= run_.best_from; });
  const Index best = std::max(best_evaluation(), before - 1);
  const Index patience = o_.evaluation.patience;
  return patience > 0 && static_cast<Index>(losses.size()) - 1 - best >= patience;
}

RunResult Run::go() {
  if (o_.handle_interrupt) interrupt_.emplace();
  if (resumed_ > 0) progress_.show_resumed(checkpoint_.saved_on(), checkpoint_.changes());
  Index saved = resumed_ > 0 ? resumed_ : -1;
  bool stopped = is_stuck();
  if (Profile* profile = o_.output.profile) profile->start();
  const AwakeThreads awake;  // a step of a small model has hundreds of short loops
  // During steps, ranks agree on this when they sum their losses. Before the first step, they agree here.
  stop_requested_ = o_.handle_interrupt && run_.ranks.any(is_stop_requested());
  while (run_.done < o_.steps && !stopped && !stop_requested_) {
    RunStep s = step();
    evaluate_into(s);
    write_log(s);
    progress_.show(s, steps_, seconds(), is_last());
    if (o_.after_step) o_.after_step(s);
    if (o_.after_evaluation && s.validation_loss) o_.after_evaluation(s);
    const bool stop = (o_.after_step || o_.after_evaluation) && run_.ranks.any(s.stop);
    stopped = stop || out_of_time_ || is_stuck();
    // The best checkpoint is saved before the last one, because a run that is resumed from the last one does not repeat
    // the evaluation.
    if (s.validation_loss && best_evaluation() == static_cast<Index>(run_.history.validation_losses.size()) - 1)
      save(o_.checkpoint.best, best_error_);
    if (const Index every = o_.checkpoint.every; every > 0 && run_.done % every == 0)
      if (save(o_.checkpoint.path, checkpoint_error_)) saved = run_.done;
    if (Profile* profile = o_.output.profile) profile->step();
    stop_requested_ = run_.ranks.agreed(steps_.end_of_any().stop, is_stop_requested());
  }
  steps_.await_values();
  if (saved != run_.done)
    save(o_.checkpoint.path, checkpoint_error_);
  else if (resumed_ == run_.done)
    sync_log();  // no step was made; removes lines after the last step
  if (!log_.error().empty()) sync_log();
  progress_.close();
  check_saved();
  return result(stopped);
}

RunResult Run::result(bool stopped) {
  RunResult result;
  result.steps = run_.done;
  result.loss_unit = steps_.loss_unit();
  result.resumed_from = resumed_;
  (stopped ? result.stopped : result.interrupted) = run_.done < o_.steps;
  if (const Index best = best_evaluation(); best >= 0)
    result.best_step = run_.history.validation_losses[static_cast<std::size_t>(best)].first;
  result.history = std::move(run_.history);
  if (!result.history.validation_losses.empty())
    result.validation_loss = result.history.validation_losses.back().second;
  if (!result.history.validation_metrics.empty()) result.validation_metrics = result.history.validation_metrics.back();
  result.warnings = std::move(warnings_);
  return result;
}

}  // namespace

void detail::check_trained(const std::vector<NamedParameter>& parameters, const std::vector<Update>& updates) {
  for (const NamedParameter& p : parameters) {
    const Optimizer* trainer = nullptr;
    for (const Update& u : updates) {
      if (!u.optimizer.trains(*p.parameter)) continue;
      require(trainer == nullptr || trainer == &u.optimizer, "run: two optimizers train ", p.name,
              "; separate the parameters, for example with split_parameters()");
      trainer = &u.optimizer;
    }
    require(!p.parameter->requires_grad() || p.parameter->storage()->parameter->trainers > 0,
            "run: no optimizer trains ", p.name, "; give it to one, or freeze it with requires_grad_(false)");
  }
}

RunResult run(RunParts parts, const RunOptions& options) {
  Ranks& ranks = detail::ranks_of(options.ranks);
  try {
    check_options(options, parts.validation.size());
    if (!parts.metrics && parts.validation.size() > 0) detail::check_monitor(options.evaluation.monitor, {{"loss", 0}});
    return Run(std::move(parts), options).go();
  } catch (const std::exception& e) {
    ranks.failed(e.what(), dynamic_cast<const FileError*>(&e) != nullptr ? 2 : 1);
    throw;
  } catch (...) {
    ranks.failed("run: a callback or the data threw something other than a std::exception");
    throw;
  }
}

}  // namespace heed

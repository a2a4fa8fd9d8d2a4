#include <algorithm>
#include <cmath>
#include <heed/autograd/matmul.hpp>
#include <heed/core/arch.hpp>
#include <heed/core/random.hpp>
#include <heed/data/disk.hpp>
#include <heed/data/text.hpp>
#include <heed/optim/clock.hpp>
#include <heed/optim/interrupt.hpp>
#include <heed/optim/run_history.hpp>
#include <heed/optim/run_log.hpp>
#include <heed/optim/run_loop.hpp>

namespace heed {
namespace {

constexpr std::uint64_t kDropoutStream = 1;  // of default_rng in training steps; its key is the run's seed

// Texts of the run's own in a checkpoint.
constexpr const char *kOptimizerName = "optimizer_name", *kInstructionSet = "instruction_set";

void check_options(const RunOptions& o) {
  require(o.steps >= 0, "run: steps is ", o.steps, "; it must be 0 or more");
  require(o.accumulate >= 1, "run: accumulate is ", o.accumulate, "; it must be 1 or more");
  require(o.grad_clip >= 0, "run: grad_clip is ", o.grad_clip, "; it must be 0 (no clipping) or more");
  require(o.eval_every >= 0 && o.eval_batches >= 0 && o.checkpoint_every >= 0, "run: eval_every is ", o.eval_every,
          ", eval_batches ", o.eval_batches, " and checkpoint_every ", o.checkpoint_every, "; they must be 0 or more");
  require(o.checkpoint_every == 0 || !o.checkpoint.empty(), "run: checkpoint_every is ", o.checkpoint_every,
          " but no checkpoint file is given");
  if (!o.checkpoint.empty()) check_place("save_checkpoint", o.checkpoint);
  require(o.checkpoint.empty() || o.log.empty() || !same_file(o.checkpoint, o.log), "run: checkpoint and log are both ",
          o.log.string(), "; they must be two files");
  require(o.average == nullptr || !o.average->swapped(),
          "run: the model has the averages inside; swap back before the run");
  for (const char* name : {kOptimizerName, kInstructionSet})
    require(o.checkpoint.empty() || o.texts.count(name) == 0, "run: one of the texts is named ", name,
            ", as one that the run itself puts into the checkpoint; it must have another name");
}

// One run: its state between steps is `done_`, the history, and what parts_ hold.
class Run {
 public:
  Run(RunParts parts, const RunOptions& options)
      : parts_(std::move(parts)), o_(options), place_("run", o_.checkpoint), resumed_(resume()), log_(o_.log, history_.losses) {
    if (o_.progress != nullptr) progress_.emplace(o_.progress);
  }

  RunResult go();

 private:
  RunParts parts_;
  const RunOptions& o_;
  detail::PlaceLock place_;  // of the checkpoint, from before it is read
  Index done_ = 0;           // steps
  RunHistory history_;
  std::string saved_on_;  // the instruction set of the checkpoint that the run goes on from; empty where none is told
  Index resumed_;         // done_ at the start; set by resume(), which fills the history before the log is opened
  detail::RunLog log_;
  std::optional<Progress> progress_;
  std::optional<double> floor_;  // of the batches that the last evaluation of this process saw
  double begin_ = detail::seconds_now(), training_seconds_ = 0, training_tokens_ = 0;

  Index resume();
  Checkpoint state() const;
  void save();
  detail::LogEntry step();
  void write_log(const detail::LogEntry& entry);
  void evaluate_into(detail::LogEntry& entry);
  void show(const detail::LogEntry& entry);
  void say_resumed();
};

Index Run::resume() {
  if (!o_.checkpoint.empty()) check_names("run", state());  // an error now, not when the first checkpoint is due
  if (!o_.resume || o_.checkpoint.empty() || !std::filesystem::exists(o_.checkpoint)) return 0;
  const Checkpoint c = load_checkpoint(o_.checkpoint);
  const std::string file = o_.checkpoint.string();
  require(c.counter("seed") == o_.seed, "resume: the seed of ", file, " is ", c.counter("seed"), " and of this run ",
          o_.seed, "; they must be the same");
  require(c.text(kOptimizerName) == parts_.optimizer->name(), "resume: the optimizer of ", file, " is ",
          printable(c.text(kOptimizerName)), " and of this run ", parts_.optimizer->name(), "; they must be the same");
  const bool averaged = c.tensors.count("average/updates") == 1;
  require(averaged == (o_.average != nullptr), "resume: ", file, averaged ? " has an" : " has no",
          " average of the weights but this run has ", averaged ? "none" : "one", "; both must have one, or neither");
  const Index step = detail::step_of(c);
  RunHistory history = detail::load_history(c, step);
  parts_.load(c);
  const auto load_state = [&c](const std::string& section, auto& part) {
    std::vector<NamedTensor> state;
    for (const auto& [path, tensor] : c.tensors)
      if (path.starts_with(section + "/")) state.push_back({path.substr(section.size() + 1), tensor});
    part.load_state(state);
  };
  load_state("optimizer", *parts_.optimizer);
  load_state("schedule", *parts_.schedule);
  if (averaged) load_state("average", *o_.average);
  history_ = std::move(history);
  if (const auto set = c.texts.find(kInstructionSet); set != c.texts.end()) saved_on_ = printable(set->second);
  require(step <= o_.steps, "resume: the checkpoint is of step ", step, " but the run has ", o_.steps,
          " steps; ask for as many or more");
  return done_ = step;
}

// All that a checkpoint of this step holds.
Checkpoint Run::state() const {
  Checkpoint c;
  parts_.store(c);
  for (const NamedTensor& t : parts_.optimizer->state()) c.tensors["optimizer/" + t.name] = t.tensor;
  for (const NamedTensor& t : parts_.schedule->state()) c.tensors["schedule/" + t.name] = t.tensor;
  if (o_.average != nullptr)
    for (const NamedTensor& t : o_.average->state()) c.tensors["average/" + t.name] = t.tensor;
  detail::store_history(history_, c);
  c.counters["step"] = static_cast<std::uint64_t>(done_);
  c.counters["seed"] = o_.seed;
  c.texts = o_.texts;
  c.texts[kOptimizerName] = parts_.optimizer->name();
  c.texts[kInstructionSet] = arch();
  return c;
}

void Run::save() {
  if (o_.checkpoint.empty()) return;
  log_.sync();  // a resumed run finds the log as long as the checkpoint says
  save_checkpoint(o_.checkpoint, state());
}

// Gradients of `accumulate` batches, each weighted by its share of the targets that count, and one optimizer step.
detail::LogEntry Run::step() {
  const double start = detail::seconds_now();
  const auto s = static_cast<std::uint64_t>(done_);
  // Dropout's numbers are those of this seed and step, whatever was drawn before.
  default_rng() = Rng(o_.seed, kDropoutStream);
  default_rng().set_position(s << 40);
  std::vector<Batch> batches;
  Index counted = 0;
  for (Index i = 0; i < o_.accumulate; ++i) {
    batches.push_back(
        parts_.batch(o_.seed, s * static_cast<std::uint64_t>(o_.accumulate) + static_cast<std::uint64_t>(i)));
    counted += batches.back().counted;
  }
  require(counted > 0, "run: all targets of step ", done_ + 1,
          " are ignored: Batch::counted, the number of those that are not, is 0 in each of its ", o_.accumulate,
          " batches; it must be above 0 in one");
  double loss = 0;
  parts_.optimizer->zero_grad();
  for (const Batch& batch : batches) {
    if (batch.counted == 0) continue;  // the mean over no target is NaN
    const double share = static_cast<double>(batch.counted) / static_cast<double>(counted);
    Tape tape({.find_nan = o_.find_nan});
    const MatmulPrecision precision(o_.precision);
    const Tensor l = parts_.loss(batch);
    loss += share * l.item();
    require(std::isfinite(loss), "run: the loss of step ", done_ + 1, " is ", loss,
            "; it must be finite: lower the learning rate, or find its cause with find_nan");
    tape.backward(l, Tensor::full(l.shape(), share, l.dtype()));
  }
  const double lr = (*parts_.schedule)(done_);
  parts_.optimizer->set_lr(lr);
  const double norm = parts_.optimizer->clipped_step(o_.grad_clip > 0 ? o_.grad_clip : INFINITY);
  if (o_.average != nullptr) o_.average->update();
  ++done_;
  history_.losses.push_back(loss);
  const double seconds = detail::seconds_now() - start;
  double tokens = 0;
  for (const Batch& batch : batches) tokens += static_cast<double>(batch.read());
  training_seconds_ += seconds;
  training_tokens_ += tokens;
  return {done_, loss, lr, norm, tokens / seconds, std::nullopt, {}};
}

// A pipe's reader may go while the run goes on. What was learned is saved before the Error ends the run; a log that is
// a file, in contrast, is never behind the checkpoint.
void Run::write_log(const detail::LogEntry& entry) {
  try {
    log_.write(entry);
  } catch (const Error&) {
    if (log_.is_stream()) save();
    throw;
  }
}

void Run::evaluate_into(detail::LogEntry& entry) {
  const bool last = done_ == o_.steps;
  if (parts_.validation.size() == 0 || !(last || (o_.eval_every > 0 && done_ % o_.eval_every == 0))) return;
  const MatmulPrecision precision(o_.precision);
  const auto loss_alone = [this](const Batch& b) { return Metrics{{"loss", parts_.loss(b).item()}}; };
  const Index batches = last || o_.eval_batches >= parts_.validation.size() ? 0 : o_.eval_batches;
  floor_ = batches == 0 ? o_.floor : o_.eval_floor;
  {
    std::optional<AveragedWeights> averaged;
    if (o_.average != nullptr) averaged.emplace(*o_.average);
    entry.val_metrics = evaluate_metrics(parts_.metrics ? parts_.metrics : loss_alone, parts_.validation, batches);
  }
  entry.val_loss = entry.val_metrics.extract("loss").mapped();
  parts_.schedule->observe(*entry.val_loss);
  history_.validation_losses.emplace_back(done_, *entry.val_loss);
  history_.validation_metrics.push_back(entry.val_metrics);
  if (o_.checkpoint.empty()) return;
  Checkpoint c;  // with the names of the metrics: an error now, not when the next checkpoint is due
  detail::store_history(history_, c);
  check_names("run", c);
}

void Run::show(const detail::LogEntry& entry) {
  if (!progress_) return;
  ProgressState p;
  p.step = done_;
  p.steps = o_.steps;
  p.loss = entry.loss;
  if (!history_.validation_losses.empty()) p.validation_loss = history_.validation_losses.back().second;
  if (!history_.validation_metrics.empty()) p.validation_metrics = history_.validation_metrics.back();
  p.floor = floor_;
  p.tokens_per_second = training_tokens_ / training_seconds_;
  if (o_.peak_flops > 0) p.share_of_peak = o_.flops_per_token * p.tokens_per_second / o_.peak_flops;
  p.seconds_left =
      (detail::seconds_now() - begin_) / static_cast<double>(done_ - resumed_) * static_cast<double>(o_.steps - done_);
  progress_->update(p, entry.val_loss.has_value() || done_ == resumed_ + 1 || done_ == o_.steps);
}

void Run::say_resumed() {
  if (!progress_ || resumed_ == 0) return;
  progress_->message("resumed at step " + std::to_string(resumed_));
  if (!saved_on_.empty() && saved_on_ != arch())
    progress_->message("the checkpoint was saved on " + saved_on_ + " and this run is on " + arch() +
                       ": its bits may differ from those of a run on one instruction set (HEED_ARCH chooses it)");
}

RunResult Run::go() {
  const detail::InterruptScope interrupt(o_.handle_interrupt);
  say_resumed();
  Index saved = resumed_ > 0 ? resumed_ : -1;
  const auto asked_to_stop = [&] {  // who read the progress through a pipe has gone
    return interrupt.asked() || (o_.handle_interrupt && progress_ && progress_->pipe_is_broken());
  };
  while (done_ < o_.steps && !asked_to_stop()) {
    detail::LogEntry entry = step();
    evaluate_into(entry);
    write_log(entry);
    show(entry);
    if (o_.checkpoint_every > 0 && done_ % o_.checkpoint_every == 0) {
      save();
      saved = done_;
    }
  }
  if (saved != done_)
    save();
  else if (resumed_ == done_)
    log_.sync();  // nothing was left to do: lines behind the last step go all the same
  if (progress_) progress_->close();
  RunResult result;
  result.steps = done_;
  result.resumed_from = resumed_;
  result.interrupted = done_ < o_.steps;
  result.history = std::move(history_);
  if (!result.history.validation_losses.empty())
    result.validation_loss = result.history.validation_losses.back().second;
  if (!result.history.validation_metrics.empty()) result.validation_metrics = result.history.validation_metrics.back();
  return result;
}

}  // namespace

void detail::check_trained(const std::vector<NamedParameter>& parameters) {
  for (const NamedParameter& p : parameters)
    require(!p.parameter->requires_grad() || p.parameter->storage()->parameter->trainers > 0,
            "run: no optimizer trains ", p.name, "; give it to one, or freeze it with requires_grad_(false)");
}

RunResult run(RunParts parts, const RunOptions& options) {
  check_options(options);
  return Run(std::move(parts), options).go();
}

}  // namespace heed

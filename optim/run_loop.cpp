// The training loop. Above 400 lines: options are checked, steps made, evaluated, kept and resumed by one class, whose
// state between steps is what a checkpoint holds.
#include <algorithm>
#include <cmath>
#include <heed/autograd/detail/tape_state.hpp>
#include <heed/autograd/matmul.hpp>
#include <heed/core/detail/profiler.hpp>
#include <heed/core/kernels/dispatch.hpp>
#include <heed/core/parallel.hpp>
#include <heed/core/random.hpp>
#include <heed/data/detail/disk.hpp>
#include <heed/data/text.hpp>
#include <heed/optim/detail/clock.hpp>
#include <heed/optim/detail/gradient_tree.hpp>
#include <heed/optim/detail/interrupt.hpp>
#include <heed/optim/detail/rank_step.hpp>
#include <heed/optim/detail/run_history.hpp>
#include <heed/optim/detail/run_log.hpp>
#include <heed/optim/detail/run_optimizers.hpp>
#include <heed/optim/detail/run_ranks.hpp>
#include <heed/optim/profile.hpp>
#include <heed/optim/run_loop.hpp>

namespace heed {
namespace {

// Of default_rng in training steps, whose key is the run's seed: the stream of the first shard, and of the next ones.
constexpr std::uint64_t kDropoutStream = 1, kNextShard = 1 << 20;

// Texts of the run's own in a checkpoint; of further optimizers kOptimizerName.NAME.
constexpr const char *kOptimizerName = "optimizer_name", *kInstructionSet = "instruction_set";

Index keep_every(const RunOptions& o) { return o.keep_every > 0 ? o.keep_every : o.checkpoint_every; }

void check_options(const RunOptions& o) {
  require(o.steps >= 0, "run: steps is ", o.steps, "; it must be 0 or more");
  require(o.seconds >= 0, "run: seconds is ", o.seconds, "; it must be 0 (any number) or more");
  require(o.accumulate >= 1, "run: accumulate is ", o.accumulate, "; it must be 1 or more");
  require(o.shards >= 1 && o.shards <= kMostShards, "run: shards is ", o.shards, "; it must be in 1..", kMostShards);
  require(o.grad_clip >= 0, "run: grad_clip is ", o.grad_clip, "; it must be 0 (no clipping) or more");
  require(o.eval_every >= 0 && o.eval_batches >= 0 && o.checkpoint_every >= 0, "run: eval_every is ", o.eval_every,
          ", eval_batches ", o.eval_batches, " and checkpoint_every ", o.checkpoint_every, "; they must be 0 or more");
  require(o.checkpoint_every == 0 || !o.checkpoint.empty(), "run: checkpoint_every is ", o.checkpoint_every,
          " but no checkpoint file is given");
  require(o.patience >= 0, "run: patience is ", o.patience, "; it must be 0 (none) or more");
  for (const std::filesystem::path& file : {o.checkpoint, o.best})
    if (!file.empty() && (o.ranks == nullptr || o.ranks->rank() == 0)) check_place("save_checkpoint", file);
  const std::pair<const char*, std::filesystem::path> files[] = {
      {"checkpoint", o.checkpoint}, {"best", o.best}, {"log", o.log}};
  for (const auto& a : files)
    for (const auto* b = &a + 1; b != std::end(files); ++b)
      require(a.second.empty() || b->second.empty() || !same_file(a.second, b->second), "run: ", a.first, " and ",
              b->first, " are both ", b->second.string(), "; they must be two files");
  require(o.average == nullptr || !o.average->swapped(),
          "run: the model has the averages inside; swap back before the run");
  require(o.keep_every >= 0, "run: keep_every is ", o.keep_every, "; it must be 0 (checkpoint_every) or more");
  require(o.last_weights == nullptr || keep_every(o) > 0, "run: last_weights is given, but keep_every and ",
          "checkpoint_every are 0; one of them must say after how many steps weights are kept");
  for (const auto& [name, text] : o.texts)
    require((o.checkpoint.empty() && o.best.empty()) ||
                (name != kInstructionSet && name != kOptimizerName && !name.starts_with("optimizer_name.")),
            "run: one of the texts is named ", name,
            ", as one that the run itself puts into the checkpoint; it must have another name");
}

void check_loss(const Tensor& loss) {
  require(loss.defined() && loss.numel() == 1, "run: the loss of a batch is ", loss,
          "; it must be one number, as mean() makes of the losses of rows");
}

// One run: its state between steps is `done_`, the history, and what parts_ hold.
class Run {
 public:
  Run(RunParts parts, const RunOptions& options)
      : parts_(std::move(parts)),
        o_(options),
        ranks_(o_.ranks, o_.shards),
        names_(names_of(parts_.updates)),
        place_("run", of_first(o_.checkpoint)),
        best_place_("run", of_first(o_.best)),
        optimizers_(parts_.updates, o_),
        resumed_(resume()),
        log_(of_first(o_.log), history_.losses) {
    if (o_.progress != nullptr && ranks_.is_first()) progress_.emplace(o_.progress);
    if (ranks_.get() != nullptr) ranks_.require_same(detail::properties_of(parts_, o_, names_, resumed_));
  }

  RunResult go();

 private:
  RunParts parts_;
  const RunOptions& o_;
  detail::RunRanks ranks_;
  std::vector<std::string> names_;        // of the updates; the first has none
  detail::PlaceLock place_, best_place_;  // of the checkpoints, from before one is read
  detail::RunOptimizers optimizers_;      // of the updates
  Index done_ = 0;                        // steps
  RunHistory history_;
  std::string saved_on_;  // the instruction set of the checkpoint that the run goes on from; empty where none is told
  Index resumed_;         // done_ at the start; set by resume(), which fills the history before the log is opened
  detail::RunLog log_;
  std::map<std::size_t, std::unique_ptr<detail::RankStep>> rank_steps_;  // by the first update of their loss
  std::optional<Progress> progress_;
  std::optional<double> floor_;  // of the batches that the last evaluation of this process saw
  double begin_ = detail::seconds_now(), training_seconds_ = 0, training_tokens_ = 0;
  double peak_ = 0;  // flops of the machine; 0: not measured yet
  int peaks_measured_ = 0;
  bool out_of_time_ = false, asked_to_stop_ = false;
  std::optional<detail::InterruptScope> interrupt_;  // from go() on

  // A file that rank 0 alone writes: empty on the others.
  std::filesystem::path of_first(const std::filesystem::path& file) const {
    return ranks_.is_first() ? file : std::filesystem::path();
  }
  std::vector<std::pair<std::string, const Optimizer*>> divided_sections() const;
  static std::vector<std::string> names_of(const std::vector<Update>& updates);
  // "optimizer", "schedule" or kOptimizerName of an update: of the first as it is, of others with their name.
  std::string named(const std::string& part, std::size_t update) const {
    return update == 0 ? part : part + "." + names_[update];
  }
  Index resume();
  Checkpoint checkpoint_to_resume() const;
  Checkpoint state() const;
  void save(const std::filesystem::path& file);
  // A part of a step: its batches, and where dropout's numbers are.
  struct Shard {
    std::vector<Batch> batches;
    Rng rng;
  };
  RunStep step();
  std::vector<Shard> shards() const;
  using Totals = std::function<const std::vector<double>&()>;  // of a step: targets that count, and tokens
  void gradients_of(const std::function<Tensor(const Batch&)>& loss, std::vector<Shard>& shards, const Totals& totals,
                    detail::RankStep* step);
  double gradients_of(const std::function<Tensor(const Batch&)>& loss, const std::vector<Batch>& batches,
                      const Totals& totals, detail::RankStep* step);
  double loss_of_all();
  detail::RankStep* begin_rank_step(std::size_t first);
  double apply(std::size_t first, std::size_t end, detail::RankStep* step);
  // Of other ranks; what reads all of them waits here, and not in the chunks of a loop.
  void await_values() {
    for (const auto& [first, step] : rank_steps_) step->wait();
  }
  void write_log(const RunStep& s);
  void evaluate_into(RunStep& s);
  void show(const RunStep& s);
  void say_resumed();
  double seconds() const { return detail::seconds_now() - begin_; }
  bool is_out_of_time() const { return o_.seconds > 0 && seconds() >= o_.seconds; }
  bool is_asked_to_stop() const {  // who read the progress through a pipe has gone
    return o_.handle_interrupt && (interrupt_->asked() || (progress_ && progress_->pipe_is_broken()));
  }
  bool is_last() const { return done_ == o_.steps || out_of_time_; }
  Index best_evaluation() const { return detail::best_evaluation(history_, o_.monitor, o_.monitor_highest); }
  bool is_stuck() const;
};

std::vector<std::string> Run::names_of(const std::vector<Update>& updates) {
  require(!updates.empty(), "run: there are no updates; there must be one or more");
  std::vector<std::string> names;
  for (std::size_t i = 0; i < updates.size(); ++i) {
    names.push_back(updates[i].name.empty() || i == 0 ? std::to_string(i + 1) : updates[i].name);
    require(std::count(names.begin(), names.end(), names.back()) == 1, "run: two updates are named ", names.back(),
            "; names must differ");
  }
  return names;
}

Checkpoint Run::checkpoint_to_resume() const {
  if (o_.loaded == nullptr) return load_checkpoint(o_.checkpoint);
  const std::string file = o_.checkpoint.string();
  require(std::filesystem::exists(o_.checkpoint), "resume: ", file, " was read, and is not there any more");
  require(detail::hash_of_checkpoint(o_.checkpoint) == o_.loaded->hash, "resume: ", file,
          " is not what was read of it any more: something else has written to it");
  return std::exchange(*o_.loaded, {});
}

Index Run::resume() {
  if (!o_.checkpoint.empty() || !o_.best.empty()) check_names("run", state());  // not only when the first one is due
  if (!o_.resume || o_.checkpoint.empty()) return 0;
  if (o_.loaded == nullptr && !std::filesystem::exists(o_.checkpoint)) return 0;
  const Checkpoint c = checkpoint_to_resume();
  const std::string file = o_.checkpoint.string();
  require(c.counter("seed") == o_.seed, "resume: the seed of ", file, " is ", c.counter("seed"), " and of this run ",
          o_.seed, "; they must be the same");
  std::vector<std::string> optimizers;
  for (std::size_t i = 0; i < parts_.updates.size(); ++i) {
    const std::string &saved = c.text(named(kOptimizerName, i)), &name = parts_.updates[i].optimizer.name();
    require(saved == name, "resume: the ", named("optimizer", i), " of ", file, " is ", printable(saved),
            " and of this run ", name, "; they must be the same");
    optimizers.push_back(named("optimizer", i));
  }
  for (const auto& [text, name] : c.texts)
    require(!text.starts_with(named(kOptimizerName, 0) + ".") ||
                std::find(names_.begin() + 1, names_.end(), text.substr(text.find('.') + 1)) != names_.end(),
            "resume: ", file, " has the optimizer ", printable(text.substr(text.find('.') + 1)),
            ", which this run has not; they must have the same");
  const bool averaged = c.tensors.count("average/updates") == 1;
  require(averaged == (o_.average != nullptr), "resume: ", file, averaged ? " has an" : " has no",
          " average of the weights but this run has ", averaged ? "none" : "one", "; both must have one, or neither");
  const bool keeps = c.tensors.count("last_weights/count") == 1;
  require(keeps == (o_.last_weights != nullptr), "resume: ", file, keeps ? " has the" : " has no",
          " last weights but this run keeps ", keeps ? "none" : "some", "; both must, or neither");
  const Index step = detail::step_of(c, optimizers);
  RunHistory history = detail::load_history(c, step);
  for (std::size_t i = 1; i < names_.size() && step > 0; ++i)
    require(history.other_losses.count(names_[i]) == (parts_.updates[i].loss ? 1 : 0), "resume: update ", names_[i],
            " of ", file, parts_.updates[i].loss ? " has no" : " has a",
            " loss of its own but this run's is otherwise; they must be the same");
  parts_.load(c);
  const auto load_state = [&c](const std::string& section, auto& part) {
    std::vector<NamedTensor> state;
    for (const auto& [path, tensor] : c.tensors)
      if (path.starts_with(section + "/")) state.push_back({path.substr(section.size() + 1), tensor});
    part.load_state(state);
  };
  for (std::size_t i = 0; i < parts_.updates.size(); ++i) {
    load_state(named("optimizer", i), parts_.updates[i].optimizer);
    load_state(named("schedule", i), parts_.updates[i].schedule);
  }
  if (averaged) load_state("average", *o_.average);
  if (keeps) load_state("last_weights", *o_.last_weights);
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
  c.texts = o_.texts;
  const auto store = [&c](const std::string& section, const std::vector<NamedTensor>& state) {
    for (const NamedTensor& t : state) c.tensors[section + "/" + t.name] = t.tensor;
  };
  for (std::size_t i = 0; i < parts_.updates.size(); ++i) {
    const Optimizer& optimizer = parts_.updates[i].optimizer;
    if (optimizer.division() == nullptr) store(named("optimizer", i), optimizer.state());
    store(named("schedule", i), parts_.updates[i].schedule.state());
    c.texts[named(kOptimizerName, i)] = parts_.updates[i].optimizer.name();
  }
  if (o_.average != nullptr) store("average", o_.average->state());
  if (o_.last_weights != nullptr) store("last_weights", o_.last_weights->state());
  detail::store_history(history_, c);
  c.counters["step"] = static_cast<std::uint64_t>(done_);
  c.counters["seed"] = o_.seed;
  c.texts[kInstructionSet] = arch();
  for (const auto& [section, optimizer] : divided_sections())
    for (const Optimizer::StatePart& part : optimizer->state_parts())
      if (part.parameter < 0)
        c.tensors[section + "/" + part.name] = part.here;
      else  // gathered when it is written
        c.late[section + "/" + part.name] = {part.shape, part.dtype};
  return c;
}

std::vector<std::pair<std::string, const Optimizer*>> Run::divided_sections() const {
  std::vector<std::pair<std::string, const Optimizer*>> sections;
  for (std::size_t i = 0; i < parts_.updates.size(); ++i)
    if (const Optimizer& optimizer = parts_.updates[i].optimizer; optimizer.division() != nullptr)
      sections.emplace_back(named("optimizer", i), &optimizer);
  return sections;
}

void Run::save(const std::filesystem::path& file) {
  if (file.empty()) return;
  const detail::ProfileScope scope("checkpoint");
  log_.sync();  // a resumed run finds the log as long as the checkpoint says
  Checkpoint c = state();
  ranks_.save(c, divided_sections(), [&file](const Checkpoint& whole) { save_checkpoint(file, whole); });
}

// Of the loss of the update `first`; null: one process.
detail::RankStep* Run::begin_rank_step(std::size_t first) {
  if (ranks_.get() == nullptr) return nullptr;
  std::unique_ptr<detail::RankStep>& step = rank_steps_[first];
  if (step == nullptr)
    step = std::make_unique<detail::RankStep>(ranks_.exchanges(), ranks_.shards(), optimizers_.all(),
                                              o_.communication_dtype);
  step->begin();
  return step.get();
}

// The gradients of this rank's shards, each weighted by its share of the targets that count, then summed over all
// shards. The loss of all is then on its way.
void Run::gradients_of(const std::function<Tensor(const Batch&)>& loss, std::vector<Shard>& shards,
                       const Totals& totals, detail::RankStep* step) {
  std::vector<double> losses;
  std::optional<detail::GradientTree> tree;
  if (step == nullptr && o_.shards > 1)
    tree.emplace(std::vector<const Optimizer*>(optimizers_.all().begin(), optimizers_.all().end()),
                 o_.communication_dtype);
  for (Shard& shard : shards) {
    const bool last = &shard == &shards.back();
    default_rng() = shard.rng;
    losses.push_back(gradients_of(loss, shard.batches, totals, last ? step : nullptr));
    shard.rng = default_rng();
    if (tree) tree->add_shard();
    if (step != nullptr && !last) step->add_shard();
  }
  totals();  // where no target counts on this rank
  if (tree) tree->finish();
  if (step != nullptr) step->finish();
  const bool flags[] = {ranks_.get() != nullptr && is_asked_to_stop(), ranks_.is_first() && is_out_of_time()};
  ranks_.start_sum_of_shards(std::move(losses), flags);
}

// Of what gradients_of() began, with what ranks told each other beside it.
double Run::loss_of_all() {
  bool flags[2];
  const double loss = ranks_.finish_sum_of_shards(flags);
  if (ranks_.get() != nullptr) asked_to_stop_ = flags[0], out_of_time_ = flags[1];
  return loss;
}

// Adds the gradients of the batches. `step` is told of those that the last batch completes. Gives their part of the
// loss.
double Run::gradients_of(const std::function<Tensor(const Batch&)>& loss, const std::vector<Batch>& batches,
                         const Totals& totals, detail::RankStep* step) {
  double sum = 0;
  const auto counts = [](const Batch& b) { return b.counted > 0; };  // the mean over no target is NaN
  const auto last = std::find_if(batches.rbegin(), batches.rend(), counts);
  for (const Batch& batch : batches) {
    if (!counts(batch)) continue;
    Tape tape({.find_nan = o_.find_nan});
    const MatmulPrecision precision(o_.precision);
    const Tensor l = loss(batch);
    check_loss(l);
    const double share = static_cast<double>(batch.counted) / totals()[0];
    sum += share * l.item();
    require(std::isfinite(sum), "run: the loss of step ", done_ + 1, " is ", sum,
            "; it must be finite: lower the learning rate, or find its cause with find_nan");
    if (step != nullptr && &batch == &*last)
      tape.state().completed = [step](const Tensor& parameter) { step->complete(parameter); };
    tape.backward(l, Tensor::full(l.shape(), share, l.dtype()));
  }
  return sum;
}

// The steps of the optimizers `first` to `end`, whose gradients are of one loss and are clipped together. Gives the
// norm.
double Run::apply(std::size_t first, std::size_t end, detail::RankStep* step) {
  const double most = o_.grad_clip > 0 ? o_.grad_clip : INFINITY;
  if (step == nullptr && end - first == 1) return parts_.updates[first].optimizer.clipped_step(most);
  double norm = 0, squares = 0;
  for (std::size_t i = first; i < end; ++i) {
    Optimizer& optimizer = parts_.updates[i].optimizer;
    norm = step != nullptr ? step->norm(optimizer) : optimizer.grad_norm();
    if (!std::isfinite(norm)) optimizer.clipped_step(most);  // an Error that names the parameter
    squares += norm * norm;
  }
  if (end - first > 1) norm = std::sqrt(squares);
  const double scale = clip_coefficient(norm, most);
  for (std::size_t i = first; i < end; ++i) {
    Optimizer& optimizer = parts_.updates[i].optimizer;
    step != nullptr ? step->step(optimizer, scale) : optimizer.step(scale);
  }
  return norm;
}

// This rank's, of the next step. Dropout's numbers are those of the seed, the step and the shard, whatever was drawn
// before.
std::vector<Run::Shard> Run::shards() const {
  const auto step = static_cast<std::uint64_t>(done_), accumulate = static_cast<std::uint64_t>(o_.accumulate);
  const auto count = static_cast<std::uint64_t>(o_.shards), end = static_cast<std::uint64_t>(ranks_.end());
  std::vector<Shard> shards;
  for (auto s = static_cast<std::uint64_t>(ranks_.begin()); s < end; ++s) {
    Shard& shard = shards.emplace_back(Shard{{}, Rng(o_.seed, kDropoutStream + s * kNextShard)});
    shard.rng.set_position(step << 40);
    for (std::uint64_t i = 0; i < accumulate; ++i) {
      const detail::ProfileScope scope("batch");
      shard.batches.push_back(parts_.batch(o_.seed, (step * count + s) * accumulate + i));
    }
  }
  return shards;
}

RunStep Run::step() {
  const double start = detail::seconds_now();
  std::vector<Shard> mine = shards();
  std::vector<double> sums(2);
  for (const Shard& shard : mine)
    for (const Batch& batch : shard.batches)
      sums[0] += static_cast<double>(batch.counted), sums[1] += static_cast<double>(batch.read());
  ranks_.start_sum(sums);
  sums.clear();
  const Totals totals = [&]() -> const std::vector<double>& {  // backward is the first that needs them
    if (!sums.empty()) return sums;
    sums = ranks_.finish_sum();
    require(sums[0] > 0, "run: all targets of step ", done_ + 1,
            " are ignored: Batch::counted, the number of those that are not, is 0 in each of its ",
            o_.shards * o_.accumulate, " batches; it must be above 0 in one");
    return sums;
  };
  RunStep made;
  const std::vector<Update>& updates = parts_.updates;
  for (std::size_t first = 0, end = 1; first < updates.size(); first = end++) {
    while (end < updates.size() && !updates[end].loss) ++end;  // those that follow one loss
    for (const Update& u : updates) u.optimizer.zero_grad();   // a GAN's losses reach the weights of both players
    for (std::size_t i = first; i < end; ++i) updates[i].optimizer.set_lr(updates[i].schedule(done_));
    detail::RankStep* const ranked = begin_rank_step(first);
    gradients_of(updates[first].loss ? updates[first].loss : parts_.loss, mine, totals, ranked);
    const double norm = apply(first, end, ranked);
    const double loss = loss_of_all();
    for (std::size_t i = first; i < end; ++i)
      (i == 0 ? made.lr : made.others["lr_" + names_[i]]) = updates[i].optimizer.lr();
    (first == 0 ? made.loss : made.others["loss_" + names_[first]]) = loss;
    (first == 0 ? made.grad_norm : made.others["grad_norm_" + names_[first]]) = norm;
    (first == 0 ? history_.losses : history_.other_losses[names_[first]]).push_back(loss);
  }
  if (o_.average != nullptr) {
    await_values();
    const detail::ProfileScope scope("average");
    o_.average->update();
  }
  made.step = ++done_;
  if (o_.last_weights != nullptr && done_ % keep_every(o_) == 0) {
    await_values();
    o_.last_weights->keep();
  }
  const double seconds = detail::seconds_now() - start;
  training_seconds_ += seconds;
  training_tokens_ += totals()[1];
  made.tokens_per_second = totals()[1] / seconds;
  return made;
}

// A pipe's reader may go while the run goes on. What was learned is saved before the Error ends the run; a log that is
// a file, in contrast, is never behind the checkpoint.
void Run::write_log(const RunStep& s) {
  const detail::ProfileScope scope("log");
  try {
    log_.write(s);
  } catch (const Error&) {
    if (log_.is_stream() && ranks_.get() == nullptr) save(o_.checkpoint);  // which needs all ranks
    throw;
  }
}

void Run::evaluate_into(RunStep& s) {
  const bool last = is_last();
  if (parts_.validation.size() == 0 || !(last || (o_.eval_every > 0 && done_ % o_.eval_every == 0))) return;
  const MatmulPrecision precision(o_.precision);
  const auto loss_alone = [this](const Batch& b) {
    const Tensor loss = parts_.loss(b);
    check_loss(loss);
    return Metrics{{"loss", loss.item()}};
  };
  const Index batches = last || o_.eval_batches >= parts_.validation.size() ? 0 : o_.eval_batches;
  floor_ = batches == 0 ? o_.floor : o_.eval_floor;
  {
    std::optional<AveragedWeights> averaged;
    if (o_.average != nullptr) averaged.emplace(*o_.average);
    s.validation_metrics = detail::evaluate_metrics(parts_.metrics ? parts_.metrics : loss_alone, parts_.validation,
                                                    batches, ranks_.get());
  }
  require((o_.patience == 0 && o_.best.empty()) || s.validation_metrics.count(o_.monitor) == 1, "run: monitor is ",
          o_.monitor, ", which the evaluation does not tell; it must be loss or one of the metrics");
  s.validation_loss = s.validation_metrics.extract("loss").mapped();
  for (std::size_t i = 0; i < parts_.updates.size(); ++i) parts_.updates[i].schedule.observe(*s.validation_loss);
  history_.validation_losses.emplace_back(done_, *s.validation_loss);
  history_.validation_metrics.push_back(s.validation_metrics);
  if (o_.checkpoint.empty()) return;
  Checkpoint c;  // with the names of the metrics: an error now, not when the next checkpoint is due
  detail::store_history(history_, c);
  check_names("run", c);
}

void Run::show(const RunStep& s) {
  if (!progress_) return;
  const detail::ProfileScope scope("progress");
  ProgressState p;
  p.step = done_;
  p.steps = o_.steps;
  p.loss = s.loss;
  for (const auto& [name, value] : s.others)
    if (name.starts_with("loss_")) p.other_losses[name.substr(5)] = value;
  if (!history_.validation_losses.empty()) p.validation_loss = history_.validation_losses.back().second;
  if (!history_.validation_metrics.empty()) p.validation_metrics = history_.validation_metrics.back();
  p.floor = floor_;
  p.tokens_per_second = training_tokens_ / training_seconds_;
  if (o_.flops_per_token > 0 && training_seconds_ > 1) {
    const double flops = o_.flops_per_token * p.tokens_per_second;
    // What measured less was disturbed; after the fourth time, the flops are not the model's.
    if (flops > peak_ && peaks_measured_++ < 4) peak_ = std::max(peak_, peak_flops(o_.precision));
    p.share_of_peak = flops / peak_;
  }
  p.seconds_left = seconds() / static_cast<double>(done_ - resumed_) * static_cast<double>(o_.steps - done_);
  if (o_.seconds > 0) p.seconds_left = std::max(0.0, std::min(p.seconds_left, o_.seconds - seconds()));
  progress_->update(p, s.validation_loss.has_value() || done_ == resumed_ + 1 || is_last());
}

void Run::say_resumed() {
  if (!progress_ || resumed_ == 0) return;
  progress_->message("resumed at step " + std::to_string(resumed_));
  if (!saved_on_.empty() && !kernels::same_bits(saved_on_.c_str(), arch()))
    progress_->message("the checkpoint was saved on " + saved_on_ + " and this run is on " + arch() +
                       ": its bits differ from those of a run on one of them");
}

// Whether patience is at its end: a function of the history, so that a run that ended so does not go on when resumed.
bool Run::is_stuck() const {
  const auto evaluations = static_cast<Index>(history_.validation_losses.size());
  return o_.patience > 0 && evaluations - 1 - best_evaluation() >= o_.patience;
}

RunResult Run::go() {
  interrupt_.emplace(o_.handle_interrupt);
  say_resumed();
  Index saved = resumed_ > 0 ? resumed_ : -1;
  bool stopped = is_stuck();
  if (o_.profile != nullptr) o_.profile->start();
  const AwakeThreads awake;  // a step of a small model is hundreds of short loops
  // Ranks agree on it where they sum their losses; before the first step here.
  asked_to_stop_ = o_.handle_interrupt && ranks_.any(is_asked_to_stop());
  while (done_ < o_.steps && !stopped && !asked_to_stop_) {
    RunStep s = step();
    if (ranks_.get() == nullptr) out_of_time_ = is_out_of_time();
    evaluate_into(s);
    write_log(s);
    show(s);
    if (o_.after_step) o_.after_step(s);
    if (o_.after_evaluation && s.validation_loss) o_.after_evaluation(s);
    const bool asked = (o_.after_step || o_.after_evaluation) && ranks_.any(s.stop);
    stopped = asked || out_of_time_ || is_stuck();
    // The best before the last: a run that is resumed after its evaluation would not make it again.
    if (s.validation_loss && best_evaluation() == static_cast<Index>(history_.validation_losses.size()) - 1)
      save(o_.best);
    if (o_.checkpoint_every > 0 && done_ % o_.checkpoint_every == 0) {
      save(o_.checkpoint);
      saved = done_;
    }
    if (o_.profile != nullptr) o_.profile->step();
    if (ranks_.get() == nullptr) asked_to_stop_ = is_asked_to_stop();
  }
  await_values();
  if (saved != done_)
    save(o_.checkpoint);
  else if (resumed_ == done_)
    log_.sync();  // nothing was left to do: lines behind the last step go all the same
  if (progress_) progress_->close();
  RunResult result;
  result.steps = done_;
  result.resumed_from = resumed_;
  (stopped ? result.stopped : result.interrupted) = done_ < o_.steps;
  if (const Index best = best_evaluation(); best >= 0)
    result.best_step = history_.validation_losses[static_cast<std::size_t>(best)].first;
  result.history = std::move(history_);
  if (!result.history.validation_losses.empty())
    result.validation_loss = result.history.validation_losses.back().second;
  if (!result.history.validation_metrics.empty()) result.validation_metrics = result.history.validation_metrics.back();
  return result;
}

}  // namespace

void detail::check_trained(const std::vector<NamedParameter>& parameters, const std::vector<Update>& updates) {
  for (const NamedParameter& p : parameters) {
    const Optimizer* trainer = nullptr;
    for (const Update& u : updates) {
      if (!u.optimizer.trains(*p.parameter)) continue;
      require(trainer == nullptr || trainer == &u.optimizer, "run: two optimizers train ", p.name,
              "; take the parameters apart, by split_parameters() for one");
      trainer = &u.optimizer;
    }
    require(!p.parameter->requires_grad() || p.parameter->storage()->parameter->trainers > 0,
            "run: no optimizer trains ", p.name, "; give it to one, or freeze it with requires_grad_(false)");
  }
}

static RunResult checked_run(RunParts parts, const RunOptions& options) {
  check_options(options);
  if (!options.best.empty() || options.patience > 0) {
    const Index batches = parts.validation.size();
    require(batches > 0, "run: best or patience is given but there is nothing to evaluate on; give a validation set");
    require(options.eval_batches == 0 || options.eval_batches >= batches, "run: eval_batches is ", options.eval_batches,
            " of ", batches, ", but best and patience compare all evaluations, and the last is of the whole set; ",
            "evaluate on a smaller set");
  }
  return Run(std::move(parts), options).go();
}

RunResult run(RunParts parts, const RunOptions& options) {
  if (options.ranks == nullptr) return checked_run(std::move(parts), options);
  try {
    return checked_run(std::move(parts), options);
  } catch (const std::exception& e) {
    options.ranks->failed(e.what());
    throw;
  } catch (...) {
    options.ranks->failed("run: something that is no Error was thrown, by a callback or by the data");
    throw;
  }
}

}  // namespace heed

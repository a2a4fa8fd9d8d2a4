// The beginning of a run: a new run, or a run that continues from a checkpoint.
#include <algorithm>
#include <heed/data/text.hpp>
#include <heed/optim/run/checkpoint.hpp>
#include <heed/optim/run/history.hpp>
#include <heed/optim/run/settings.hpp>

namespace heed::detail {
namespace {

bool is_file(const std::filesystem::path& path) {
  std::error_code ignored;  // such as a loop of links; opening the file throws the Error
  return std::filesystem::exists(path, ignored);
}

const char* const kAnother = "; CheckpointOptions::init starts a new run from its weights";

std::vector<NamedTensor> section_of(const Checkpoint& c, const std::string& section) {
  std::vector<NamedTensor> state;
  for (const auto& [path, tensor] : c.tensors)
    if (path.starts_with(section + "/")) state.push_back({path.substr(section.size() + 1), tensor});
  return state;
}

}  // namespace

// Whether the run continues from its checkpoint. Throws Error if the files exist or do not exist, against
// CheckpointOptions::start.
bool RunCheckpoint::resumes() const {
  const std::string file = o_.path.string();
  const bool exists = !o_.path.empty() && is_file(o_.path);
  require(o_.start != RunStart::resume || !o_.path.empty(),
          "run: checkpoint.start is resume, but checkpoint.path is empty");
  require(o_.start != RunStart::resume || exists || o_.loaded != nullptr, "resume: there is no checkpoint ", file,
          "; RunStart::resume_or_start starts a new run if there is none");
  const bool resumes = o_.start == RunStart::resume || (o_.start == RunStart::resume_or_start && (exists || o_.loaded));
  if (resumes || o_.start == RunStart::overwrite || !run_.ranks.is_first()) return resumes;
  require(!exists, "run: ", file, " exists already; RunStart::resume continues from it, RunStart::overwrite replaces ",
          "it, CheckpointOptions::init starts a new run from its weights");
  const bool again = o_.start == RunStart::resume_or_start && !o_.best.empty() && is_of_same_run(o_.best);
  require(again || o_.best.empty() || !is_file(o_.best), "run: ", o_.best.string(),
          ", for the best checkpoint, exists already; RunStart::overwrite replaces it");
  return false;
}

// Whether a best checkpoint is of this run. The run was then killed before its first other checkpoint, and a new start
// writes the best one again.
bool RunCheckpoint::is_of_same_run(const std::filesystem::path& best) const {
  const RunOptions& o = run_.options;
  if (!is_file(best)) return false;
  const Checkpoint c = load_checkpoint(best);
  const auto same_text = [&c](const auto& text) {
    const auto found = c.texts.find(text.first);
    return found != c.texts.end() && found->second == text.second;
  };
  return c.counter("seed") == o.seed && std::ranges::all_of(o_.texts, same_text) && changed_settings(o, c).empty() &&
         same_text(std::pair("training_data", run_.data.training())) &&
         same_text(std::pair("validation_data", run_.data.validation()));
}

// The content of a checkpoint, which the caller may have read already.
Checkpoint RunCheckpoint::loaded(const std::filesystem::path& path) const {
  if (o_.loaded == nullptr) return load_checkpoint(path);
  const std::string file = path.string();
  require(is_file(path), "resume: ", file, " was read, but no longer exists");
  require(hash_of_checkpoint(path) == o_.loaded->hash, "resume: ", file,
          " has changed since it was read; no other program may write to it");
  return std::exchange(*o_.loaded, {});
}

// Returns the sections of the optimizers. Throws Error unless they fit this run.
std::vector<std::string> RunCheckpoint::check_optimizers(const Checkpoint& c) const {
  const std::string file = o_.path.string();
  const std::vector<std::string>& names = run_.names;
  std::vector<std::string> optimizers;
  for (std::size_t i = 0; i < run_.parts.updates.size(); ++i) {
    const std::string &saved = c.text(run_.named(kOptimizerName, i)), &name = run_.parts.updates[i].optimizer.name();
    require(saved == name, "resume: the ", run_.named("optimizer", i), " of ", file, " is ", printable(saved),
            " but this run's is ", name, "; they must be the same", kAnother);
    optimizers.push_back(run_.named("optimizer", i));
  }
  for (const auto& [text, name] : c.texts)
    require(!text.starts_with(std::string(kOptimizerName) + ".") ||
                std::find(names.begin() + 1, names.end(), text.substr(text.find('.') + 1)) != names.end(),
            "resume: ", file, " has the optimizer ", printable(text.substr(text.find('.') + 1)),
            " but this run does not; both must have the same optimizers");
  return optimizers;
}

void RunCheckpoint::check_averages(const Checkpoint& c) const {
  const RunOptions& o = run_.options;
  const std::string file = o_.path.string();
  const bool averaged = c.tensors.count("average/updates") == 1;
  require(averaged == (o.average != nullptr), "resume: ", file, averaged ? " has an" : " has no",
          " average of the weights but this run has ", averaged ? "none" : "one", "; both must have one, or neither");
  const bool keeps = c.tensors.count("last_weights/count") == 1;
  require(keeps == (o.last_weights != nullptr), "resume: ", file, keeps ? " has" : " has no",
          " last weights but this run has ", keeps ? "none" : "some", "; both must have them, or neither");
}

// Loads weights and states. Everything else of the checkpoint is checked already.
void RunCheckpoint::load(const Checkpoint& c) {
  run_.parts.load(c);
  for (std::size_t i = 0; i < run_.parts.updates.size(); ++i)
    run_.parts.updates[i].optimizer.load_state(section_of(c, run_.named("optimizer", i)));
  resume_schedules(c);
  if (run_.options.average != nullptr) run_.options.average->load_state(section_of(c, "average"));
  if (run_.options.last_weights != nullptr) run_.options.last_weights->load_state(section_of(c, "last_weights"));
}

void RunCheckpoint::resume_schedules(const Checkpoint& c) {
  const Index step = static_cast<Index>(c.counter("step"));
  for (std::size_t i = 0; i < run_.parts.updates.size(); ++i) {
    const Update& u = run_.parts.updates[i];
    const double last = u.optimizer.lr();
    if (!u.schedule.resume(section_of(c, run_.named("schedule", i)), step, last)) continue;
    const double next = u.schedule(step);
    std::string change =
        (i == 0 ? "" : run_.names[i] + ": ") + "next learning rate " + shortest(next) + ", before: " + shortest(last);
    if (step < run_.options.steps && next == u.schedule(run_.options.steps) && u.schedule.name() != "constant")
      change += "; its schedule has ended; another lr restarts it";
    changes_.push_back(change);
  }
}

Index RunCheckpoint::begin() {
  require(o_.init.empty() || o_.start != RunStart::resume, "run: checkpoint.init is ", o_.init.string(),
          ", but checkpoint.start is resume, which takes the weights of ", o_.path.string(), "; leave one of them out");
  const bool resumes = this->resumes();
  if (!o_.path.empty() || !o_.best.empty()) check_names("run", state());  // now, not only at the first save
  if (resumes) {
    resume();
  } else if (!o_.init.empty()) {
    run_.parts.load(loaded(o_.init));
    if (run_.options.average != nullptr) run_.options.average->restart();
  }
  return run_.done;
}

void RunCheckpoint::resume() {
  const RunOptions& o = run_.options;
  const Checkpoint c = loaded(o_.path);
  const std::string file = o_.path.string();
  require(c.counter("seed") == o.seed, "resume: the seed of ", file, " is ", c.counter("seed"), " but this run's is ",
          o.seed, "; they must be the same", kAnother);
  changes_ = changed_settings(o, c);
  const std::vector<std::string> optimizers = check_optimizers(c);
  check_averages(c);
  const Index step = step_of(c, optimizers);
  RunHistory history = load_history(c, step);
  for (std::size_t i = 1; i < run_.names.size() && step > 0; ++i)
    require(history.other_losses.count(run_.names[i]) == (run_.parts.updates[i].loss ? 1 : 0), "resume: update ",
            run_.names[i], " of ", file, run_.parts.updates[i].loss ? " has no" : " has a",
            " loss of its own, unlike in this run; they must be the same");
  require(step <= o.steps, "resume: ", file, " is at step ", step, " but the run has ", o.steps,
          " steps; steps must be at least ", step);
  const bool other_validation = run_.data.resume(c, step, changes_);
  load(c);
  if (const auto set = c.texts.find(kInstructionSet); set != c.texts.end()) saved_on_ = printable(set->second);
  run_.history = std::move(history);
  run_.done = step;
  if (const auto from = c.counters.find(kBestFrom); from != c.counters.end())
    run_.best_from = std::min(step, static_cast<Index>(from->second));
  if (other_validation) run_.best_from = step;
  double from[] = {run_.ranks.is_first() ? static_cast<double>(check_best()) : 0.0};
  run_.ranks.sum(from);  // only rank 0 reads the file
  if (static_cast<Index>(from[0]) != run_.best_from)
    changes_.push_back("the best checkpoint is chosen from later evaluations, because " + o_.best.string() +
                       " does not exist");
  run_.best_from = static_cast<Index>(from[0]);
}

// Returns RunState::best_from. Throws Error if the best checkpoint exists and is neither the best of this history nor
// of its continuation. A run that was killed before its next checkpoint has such a continuation, and makes the same
// steps again.
Index RunCheckpoint::check_best() {
  const Index best = best_evaluation(run_.history, run_.options.evaluation, run_.best_from);
  const Index step = best < 0 ? 0 : run_.history.validation_losses[static_cast<std::size_t>(best)].first;
  if (o_.best.empty()) return run_.best_from;
  if (!is_file(o_.best)) {
    if (step < run_.done) return best < 0 ? run_.best_from : run_.done;
    if (best < 0) return run_.best_from;
    // The checkpoint to resume is the best. Several ranks would have to save it together.
    return run_.ranks.is_alone() && save(o_.best).empty() ? run_.best_from : run_.done;
  }
  const Checkpoint c = load_checkpoint(o_.best);
  const Index at = static_cast<Index>(c.counter("step"));
  const std::vector<double> there = c.tensor("history/loss").to_vector<double>(), &here = run_.history.losses;
  const std::size_t common = std::min(there.size(), here.size());
  const bool same_run = std::equal(there.begin(), there.begin() + static_cast<std::ptrdiff_t>(common), here.begin());
  const std::string file = o_.best.string(), of = " the best checkpoint of " + o_.path.string();
  require(same_run, "resume: ", file, " is not", of, " but belongs to another run; give another file as best");
  require(at > run_.done || at == step, "resume: ", file, " is at step ", at, " and is not", of,
          step > 0 ? ", whose best evaluation was after step " + std::to_string(step) : ", which has no evaluation",
          "; give another file as best");
  require(at <= run_.done || changes_.empty(), "resume: ", file, " is at step ", at, ", which ", o_.path.string(),
          " has not reached, and the options have changed (", changes_.empty() ? "" : changes_[0],
          "); give another file as best, or the same options as before");
  return run_.best_from;
}

}  // namespace heed::detail

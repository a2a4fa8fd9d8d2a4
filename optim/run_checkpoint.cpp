// What a run saves, and goes on from.
#include <algorithm>
#include <array>
#include <heed/core/kernels/dispatch.hpp>
#include <heed/data/text.hpp>
#include <heed/optim/detail/run_checkpoint.hpp>
#include <heed/optim/detail/run_history.hpp>

namespace heed::detail {
namespace {

// Texts of the run's own in a checkpoint; of further optimizers kOptimizerName.NAME.
constexpr const char *kOptimizerName = "optimizer_name", *kInstructionSet = "instruction_set";

// What the number of a batch is counted by, beside the step.
std::array<std::pair<const char*, std::uint64_t>, 2> counts_of_step(const RunOptions& o) {
  return {{{"shards", static_cast<std::uint64_t>(o.shards)}, {"accumulate", static_cast<std::uint64_t>(o.accumulate)}}};
}

// What it is rounded to. Texts of the run's own, too.
std::array<std::pair<const char*, DType>, 2> types_of_step(const RunOptions& o) {
  return {{{"precision", o.precision}, {"communication_dtype", o.communication_dtype}}};
}

}  // namespace

bool is_text_of_run(const std::string& name) {
  const auto types = types_of_step({});
  return name == kInstructionSet || name == kOptimizerName || name.starts_with(std::string(kOptimizerName) + ".") ||
         std::any_of(types.begin(), types.end(), [&name](const auto& type) { return name == type.first; });
}

RunCheckpoint::RunCheckpoint(RunState& run)
    : run_(run), place_("run", run.of_first(run.options.checkpoint)), best_("run", run.of_first(run.options.best)) {}

Checkpoint RunCheckpoint::checkpoint_to_resume() const {
  const RunOptions& o = run_.options;
  if (o.loaded == nullptr) return load_checkpoint(o.checkpoint);
  const std::string file = o.checkpoint.string();
  require(std::filesystem::exists(o.checkpoint), "resume: ", file, " was read, and is not there any more");
  require(hash_of_checkpoint(o.checkpoint) == o.loaded->hash, "resume: ", file,
          " is not what was read of it any more: something else has written to it");
  return std::exchange(*o.loaded, {});
}

// Gives their sections. Error where they are not this run's.
std::vector<std::string> RunCheckpoint::check_optimizers(const Checkpoint& c) const {
  const std::string file = run_.options.checkpoint.string();
  const std::vector<std::string>& names = run_.names;
  std::vector<std::string> optimizers;
  for (std::size_t i = 0; i < run_.parts.updates.size(); ++i) {
    const std::string &saved = c.text(run_.named(kOptimizerName, i)), &name = run_.parts.updates[i].optimizer.name();
    require(saved == name, "resume: the ", run_.named("optimizer", i), " of ", file, " is ", printable(saved),
            " and of this run ", name, "; they must be the same");
    optimizers.push_back(run_.named("optimizer", i));
  }
  for (const auto& [text, name] : c.texts)
    require(!text.starts_with(std::string(kOptimizerName) + ".") ||
                std::find(names.begin() + 1, names.end(), text.substr(text.find('.') + 1)) != names.end(),
            "resume: ", file, " has the optimizer ", printable(text.substr(text.find('.') + 1)),
            ", which this run has not; they must have the same");
  return optimizers;
}

// Weights and states, when all else of the checkpoint is checked.
void RunCheckpoint::load(const Checkpoint& c) const {
  run_.parts.load(c);
  const auto load_state = [&c](const std::string& section, auto& part) {
    std::vector<NamedTensor> state;
    for (const auto& [path, tensor] : c.tensors)
      if (path.starts_with(section + "/")) state.push_back({path.substr(section.size() + 1), tensor});
    part.load_state(state);
  };
  for (std::size_t i = 0; i < run_.parts.updates.size(); ++i) {
    load_state(run_.named("optimizer", i), run_.parts.updates[i].optimizer);
    load_state(run_.named("schedule", i), run_.parts.updates[i].schedule);
  }
  if (run_.options.average != nullptr) load_state("average", *run_.options.average);
  if (run_.options.last_weights != nullptr) load_state("last_weights", *run_.options.last_weights);
}

Index RunCheckpoint::resume() {
  const RunOptions& o = run_.options;
  if (!o.checkpoint.empty() || !o.best.empty()) check_names("run", state());  // not only when the first one is due
  if (!o.resume || o.checkpoint.empty()) return 0;
  if (o.loaded == nullptr && !std::filesystem::exists(o.checkpoint)) return 0;
  const Checkpoint c = checkpoint_to_resume();
  const std::string file = o.checkpoint.string();
  require(c.counter("seed") == o.seed, "resume: the seed of ", file, " is ", c.counter("seed"), " and of this run ",
          o.seed, "; they must be the same");
  for (const auto& [name, here] : counts_of_step(o)) {
    const auto saved = c.counters.find(name);
    if (saved == c.counters.end()) continue;  // a file of an older run
    require(saved->second == here, "resume: ", name, " of ", file, " is ", saved->second, " and of this run ", here,
            "; they must be the same, or steps would read other batches");
  }
  for (const auto& [name, type] : types_of_step(o)) {
    const auto saved = c.texts.find(name);
    if (saved == c.texts.end()) continue;  // a file of an older run
    require(saved->second == name_of(type), "resume: ", name, " of ", file, " is ", printable(saved->second),
            " and of this run ", type, "; they must be the same, or steps would round otherwise");
  }
  const std::vector<std::string> optimizers = check_optimizers(c);
  const bool averaged = c.tensors.count("average/updates") == 1;
  require(averaged == (o.average != nullptr), "resume: ", file, averaged ? " has an" : " has no",
          " average of the weights but this run has ", averaged ? "none" : "one", "; both must have one, or neither");
  const bool keeps = c.tensors.count("last_weights/count") == 1;
  require(keeps == (o.last_weights != nullptr), "resume: ", file, keeps ? " has the" : " has no",
          " last weights but this run keeps ", keeps ? "none" : "some", "; both must, or neither");
  const Index step = step_of(c, optimizers);
  RunHistory history = load_history(c, step);
  for (std::size_t i = 1; i < run_.names.size() && step > 0; ++i)
    require(history.other_losses.count(run_.names[i]) == (run_.parts.updates[i].loss ? 1 : 0), "resume: update ",
            run_.names[i], " of ", file, run_.parts.updates[i].loss ? " has no" : " has a",
            " loss of its own but this run's is otherwise; they must be the same");
  load(c);
  run_.history = std::move(history);
  if (const auto set = c.texts.find(kInstructionSet); set != c.texts.end()) saved_on_ = printable(set->second);
  require(step <= o.steps, "resume: the checkpoint is of step ", step, " but the run has ", o.steps,
          " steps; ask for as many or more");
  return run_.done = step;
}

// All that a checkpoint of this step holds.
Checkpoint RunCheckpoint::state() const {
  Checkpoint c;
  run_.parts.store(c);
  c.texts = run_.options.texts;
  const auto store = [&c](const std::string& section, const std::vector<NamedTensor>& state) {
    for (const NamedTensor& t : state) c.tensors[section + "/" + t.name] = t.tensor;
  };
  for (std::size_t i = 0; i < run_.parts.updates.size(); ++i) {
    const Optimizer& optimizer = run_.parts.updates[i].optimizer;
    if (optimizer.division() == nullptr) store(run_.named("optimizer", i), optimizer.state());
    store(run_.named("schedule", i), run_.parts.updates[i].schedule.state());
    c.texts[run_.named(kOptimizerName, i)] = optimizer.name();
  }
  if (run_.options.average != nullptr) store("average", run_.options.average->state());
  if (run_.options.last_weights != nullptr) store("last_weights", run_.options.last_weights->state());
  store_history(run_.history, c);
  c.counters["step"] = static_cast<std::uint64_t>(run_.done);
  c.counters["seed"] = run_.options.seed;
  for (const auto& [name, count] : counts_of_step(run_.options)) c.counters[name] = count;
  for (const auto& [name, type] : types_of_step(run_.options)) c.texts[name] = name_of(type);
  c.texts[kInstructionSet] = arch();
  for (const auto& [section, optimizer] : divided_sections())
    for (const Optimizer::StatePart& part : optimizer->state_parts())
      if (part.parameter < 0)
        c.tensors[section + "/" + part.name] = part.here;
      else  // gathered when it is written
        c.late[section + "/" + part.name] = {part.shape, part.dtype};
  return c;
}

std::vector<std::pair<std::string, const Optimizer*>> RunCheckpoint::divided_sections() const {
  std::vector<std::pair<std::string, const Optimizer*>> sections;
  for (std::size_t i = 0; i < run_.parts.updates.size(); ++i)
    if (const Optimizer& optimizer = run_.parts.updates[i].optimizer; optimizer.division() != nullptr)
      sections.emplace_back(run_.named("optimizer", i), &optimizer);
  return sections;
}

void RunCheckpoint::save(const std::filesystem::path& file) const {
  if (file.empty()) return;
  Checkpoint c = state();
  run_.ranks.save(c, divided_sections(), [&file](const Checkpoint& whole) { save_checkpoint(file, whole); });
}

}  // namespace heed::detail

// The content of a run's checkpoint, and saving it.
#include <algorithm>
#include <array>
#include <heed/core/kernels/dispatch/dispatch.hpp>
#include <heed/optim/run/checkpoint.hpp>
#include <heed/optim/run/history.hpp>
#include <heed/optim/run/settings.hpp>

namespace heed::detail {

bool is_text_of_run(const std::string& name) {
  constexpr std::array names = {kRunOptions, kInstructionSet, kOptimizerName,
                                kBaseHash,   "training_data", "validation_data"};
  return std::ranges::find(names, name) != names.end() || name.starts_with(std::string(kOptimizerName) + ".");
}

RunCheckpoint::RunCheckpoint(RunState& run)
    : run_(run),
      o_(run.options.checkpoint),
      place_("run", run.of_first(o_.path)),
      best_("run", run.of_first(o_.best)) {}

// The checkpoint of the current step.
Checkpoint RunCheckpoint::state() const {
  Checkpoint c;
  c.texts = o_.texts;
  run_.parts.store(c);
  const auto store = [&c](const std::string& section, const std::vector<NamedTensor>& state) {
    for (const NamedTensor& t : state) c.tensors[section + "/" + t.name] = t.tensor;
  };
  for (std::size_t i = 0; i < run_.parts.updates.size(); ++i) {
    const Optimizer& optimizer = run_.parts.updates[i].optimizer;
    run_.ranks.store(optimizer, run_.named("optimizer", i), c);
    store(run_.named("schedule", i), run_.parts.updates[i].schedule.state());
    c.texts[run_.named(kOptimizerName, i)] = optimizer.name();
  }
  if (run_.options.average != nullptr) store("average", run_.options.average->state());
  if (run_.options.last_weights != nullptr) store("last_weights", run_.options.last_weights->state());
  store_history(run_.history, c);
  c.counters["step"] = static_cast<std::uint64_t>(run_.done);
  c.counters["seed"] = run_.options.seed;
  if (run_.best_from > 0) c.counters[kBestFrom] = static_cast<std::uint64_t>(run_.best_from);
  store_settings(run_.options, c);
  run_.data.store(c, run_.done);
  c.texts[kInstructionSet] = arch();
  return c;
}

std::string RunCheckpoint::save(const std::filesystem::path& file) const {
  if (file.empty()) return "";
  Checkpoint c = state();
  return run_.ranks.save(c, file);
}

}  // namespace heed::detail

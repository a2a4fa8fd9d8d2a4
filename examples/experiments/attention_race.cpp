// Trains the same small model with each attention mechanism, from the same seed and data, and compares losses, right
// answers, speed and memory.
//
//   attention_race --plot race.svg --log race.jsonl               everything; prints how long it will take
//   attention_race --mechanisms softmax,linear --tasks copy       two mechanisms on one task
//   attention_race --mechanisms softmax,linear,gated-delta,kda --tasks recall,tracking
#include <algorithm>
#include <heed/layers/model_config.hpp>

#include "examples/experiments/race.hpp"
#include "examples/support/mechanism_flags.hpp"
#include "examples/support/program.hpp"

namespace {

using namespace heed;
using namespace heed::examples;

// The entries of all tasks. Throws UsageError for an option that has no effect: one of a mechanism that --mechanisms
// does not name, or without a task that reads --mechanisms.
std::vector<RaceEntry> checked_entries(const CommandLine& line, const RaceSettings& s) {
  if (std::none_of(s.tasks.begin(), s.tasks.end(), takes_mechanisms))
    for (const MechanismOption& o : mechanism_options())
      if (line.given("--" + o.name))
        throw UsageError("--" + o.name + " is " + line.word("--" + o.name) + " and --tasks is " + choice(s.tasks, ",") +
                         "; --tasks must include copy, recall, tracking or stories, or leave --" + o.name + " out");
  check_mechanism_flags(line, "--mechanisms", s.mechanisms);
  std::vector<RaceEntry> entries;
  for (const std::string& task : s.tasks)
    for (RaceEntry& e : race_entries(task, s.mechanisms, s.seed, s.options)) entries.push_back(std::move(e));
  for (const RaceEntry& e : entries) check_mechanism(line, "--mechanisms", e.mechanism, e.options);
  return entries;
}

}  // namespace

int main(int argc, char** argv) {
  RaceSettings s;
  s.mechanisms = mechanism_names();
  s.tasks = race_task_names();
  CommandLine line("Compares attention mechanisms with the same small model, seed and data", "attention_race");
  line.add("--mechanisms", s.mechanisms,
           "Mechanisms for the tasks copy, recall, tracking and stories, separated by commas: " +
               choice(mechanism_names(), ", ") + " [all]",
           list_of(one_of(mechanism_names()), "LIST"));
  SettingFields options;
  mechanism_fields(options, s.options, mechanism_names());
  options.add_flags(line);
  line.add(
      "--tasks", s.tasks,
      "copy: a sequence and its copy. recall: values of keys. tracking: places of things after swaps. stories: a "
      "language model, and its answers to the stories' questions "
      "by distance. rank: linear attention with small heads and 4 times larger ones. linformer: encoders that fill in "
      "masked answers, Linformer with 4 to 32 rows. lengths: the same with 16 rows, for 40 to 320 positions [all]",
      list_of(one_of(race_task_names()), "LIST"));
  line.add("--steps", s.steps, "Training steps of each run [by task]", whole(1));
  line.add("--seed", s.seed, "Seed of data and weights [1]", seed_number());
  line.add_threads(s.threads);
  line.add("--plot", s.plot,
           "Pictures; for race.svg (or .png) their names are race-copy-loss.svg, race-copy-cost.svg, "
           "race-stories-distance.svg and so on",
           file_name("FILE.svg|png", FileRole::output));
  line.add("--log", s.log, "One JSON object per evaluation and per run", file_name("FILE", FileRole::log));
  return run_program(line, argc, argv, [&] { return race(s, checked_entries(line, s)); });
}

// Trains the same small model from the same seed and data with each attention mechanism, and compares what they learn,
// how fast, and in how much memory.
//
//   attention_race --plot race.svg --log race.jsonl               everything: about 40 minutes on two cores
//   attention_race --mechanisms softmax,linear --tasks copy       two of them on one task
#include <heed/layers/attention/by_name.hpp>

#include "examples/support/flag_checks.hpp"
#include "examples/support/program.hpp"
#include "examples/support/race.hpp"

int main(int argc, char** argv) {
  using namespace heed;
  using namespace heed::examples;
  RaceSettings s;
  s.mechanisms = mechanism_names();
  s.tasks = race_task_names();
  CLI::App app("Races attention mechanisms: the same small model, seed and data with each", "attention_race");
  app.add_option(
         "--mechanisms", s.mechanisms,
         "Mechanisms of the tasks copy and stories, with commas between: " + choice(mechanism_names()) + " [all]")
      ->type_name("LIST")
      ->delimiter(',')
      ->check(one_of(mechanism_names()));
  app.add_option(
         "--tasks", s.tasks,
         "copy: a sequence and the same again. stories: a language model, and its answers to the stories' "
         "questions by distance. rank: linear attention with heads of 1 and 4 times the size. linformer: encoders "
         "that fill in masked answers, Linformer with 8 to 64 rows [all]")
      ->type_name("LIST")
      ->delimiter(',')
      ->check(one_of(race_task_names()));
  app.add_option("--steps", s.steps, "Training steps of each run [as the task has it]")
      ->type_name("N")
      ->check(whole(1));
  app.add_option("--seed", s.seed, "Of data and weights [1]")->type_name("N")->check(whole(0));
  app.add_option("--threads", s.threads, "0: all cores [0]")->type_name("N")->check(whole(0, 1024));
  app.add_option("--plot", s.plot,
                 "Draws pictures; of race.svg (or .png) the names are race-copy-loss.svg, race-copy-cost.svg, "
                 "race-stories-distance.svg and so on")
      ->type_name("FILE");
  app.add_option("--log", s.log, "JSON lines: an object for each evaluation and each run")->type_name("FILE");
  return run_program(app, argc, argv, [&] { return race(s); });
}

// What a run saves, and goes on from. Internal.
#pragma once
#include <heed/data/detail/disk.hpp>
#include <heed/optim/detail/run_state.hpp>
#include <string>
#include <utility>
#include <vector>

namespace heed::detail {

// Texts of the run's own in a checkpoint; of further optimizers kOptimizerName.NAME.
inline constexpr const char *kOptimizerName = "optimizer_name", *kInstructionSet = "instruction_set";
inline constexpr const char* kBestFrom = "best_from";  // a counter, RunState::best_from; left out where it is 0

// The checkpoints of a run. No other run may write them as long as this lives. How a run begins with them is in
// optim/run_start.cpp.
class RunCheckpoint {
 public:
  explicit RunCheckpoint(RunState& run);

  // Begins as RunOptions::start says. Where it continues from a checkpoint, weights, optimizers, schedules, averages
  // and `run` are as they were. Returns the step that it continues from; 0: a new run. Error where the checkpoint is
  // not one of this run.
  Index begin();
  const std::string& saved_on() const { return saved_on_; }  // its instruction set; empty: unknown
  // What differs from the run that saved the checkpoint, for people.
  const std::vector<std::string>& changes() const { return changes_; }

  // Returns why the file could not be written, on all ranks alike; empty: it was. No name is no file.
  std::string save(const std::filesystem::path& file) const;

 private:
  RunState& run_;
  PlaceLock place_, best_;
  std::string saved_on_;
  std::vector<std::string> changes_;

  bool resumes() const;
  bool is_of_same_run(const std::filesystem::path& best) const;
  Checkpoint loaded(const std::filesystem::path& file) const;
  void resume();
  std::vector<std::string> check_optimizers(const Checkpoint& c) const;
  void check_averages(const Checkpoint& c) const;
  void load(const Checkpoint& c);
  void resume_schedules(const Checkpoint& c);
  Index check_best();
  Checkpoint state() const;
  std::vector<std::pair<std::string, const Optimizer*>> divided_sections() const;
};

// Whether a run puts a text of this name into its checkpoints itself.
bool is_text_of_run(const std::string& name);

}  // namespace heed::detail

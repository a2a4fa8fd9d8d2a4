// The checkpoints of run(): saving them, and beginning a run with them. Private to optim/run.
#pragma once
#include <heed/data/detail/disk.hpp>
#include <heed/optim/run/state.hpp>
#include <string>
#include <vector>

namespace heed::detail {

// Names of texts that a run stores in its checkpoints. Further optimizers use kOptimizerName.NAME.
inline constexpr const char *kOptimizerName = "optimizer_name", *kInstructionSet = "instruction_set";
inline constexpr const char* kBestFrom = "best_from";  // counter with RunState::best_from; left out if 0

// The checkpoints of a run. During its lifetime, no other run may write these files. optim/run/start.cpp defines the
// functions that begin a run.
class RunCheckpoint {
 public:
  explicit RunCheckpoint(RunState& run);

  // Begins as CheckpointOptions::start says. To continue from a checkpoint, restores weights, optimizers, schedules,
  // averages and `run`. Returns the step to continue from; 0: a new run. Throws Error if the checkpoint is not of this
  // run.
  Index begin();
  const std::string& saved_on() const { return saved_on_; }  // instruction set of the loaded checkpoint; empty: unknown
  // Differences from the run that saved the checkpoint, as messages.
  const std::vector<std::string>& changes() const { return changes_; }

  // Returns the reason if the file could not be written, on all ranks; else an empty text. Ignores an empty path.
  std::string save(const std::filesystem::path& file) const;

 private:
  RunState& run_;
  const CheckpointOptions& o_;
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
};

// Whether a run stores a text with this name in its checkpoints.
bool is_text_of_run(const std::string& name);

}  // namespace heed::detail

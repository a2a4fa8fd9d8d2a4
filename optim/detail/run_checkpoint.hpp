// What a run saves, and goes on from. Internal.
#pragma once
#include <heed/data/detail/disk.hpp>
#include <heed/optim/detail/run_state.hpp>
#include <string>
#include <utility>
#include <vector>

namespace heed::detail {

// The checkpoints of a run. No other run may write them as long as this lives.
class RunCheckpoint {
 public:
  explicit RunCheckpoint(RunState& run);

  // Goes on from the checkpoint, where the run is to and there is one: weights, optimizers, schedules and averages are
  // as it says, and `run` too. Gives its step; 0: from the beginning. Error where it is not one of this run.
  Index resume();
  const std::string& saved_on() const { return saved_on_; }  // its instruction set; empty where none is told

  void save(const std::filesystem::path& file) const;  // empty: nothing

 private:
  RunState& run_;
  PlaceLock place_, best_;
  std::string saved_on_;

  Checkpoint checkpoint_to_resume() const;
  std::vector<std::string> check_optimizers(const Checkpoint& c) const;
  void load(const Checkpoint& c) const;
  Checkpoint state() const;
  std::vector<std::pair<std::string, const Optimizer*>> divided_sections() const;
};

// Whether a run puts a text of this name into its checkpoints itself.
bool is_text_of_run(const std::string& name);

}  // namespace heed::detail

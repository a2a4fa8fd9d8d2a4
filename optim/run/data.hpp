// The data of run(): batches, fingerprints, and the number of batches read. Private to optim/run.
#pragma once
#include <heed/optim/run/options.hpp>
#include <heed/optim/run/parts.hpp>
#include <memory>
#include <string>
#include <vector>

namespace heed::detail {

// Reads the batches of a run and continues after those of a checkpoint.
class RunData {
 public:
  RunData(Dataset data, const EvaluationSet& validation, const RunOptions& options);

  // Batch i of a shard of a step, from 0 to RunOptions::accumulate - 1.
  Batch batch(Index step, std::uint64_t shard, std::uint64_t i);

  // Fingerprints of the data, for messages and comparisons; "none" for an empty validation set. Computed once.
  const std::string& training() const;
  const std::string& validation() const;

  void store(Checkpoint& c, Index done) const;

  // Continues after step `done` of a checkpoint, with the next sample. Adds differences to `changes`. Returns whether
  // the validation data differ. Throws Error for other data, unless CheckpointOptions::other_data, and for batches of
  // another size if the data set cannot continue.
  bool resume(const Checkpoint& c, Index done, std::vector<std::string>& changes);

 private:
  const RunOptions& options_;
  Dataset data_;
  const EvaluationSet& evaluation_;
  std::vector<BatchesRead> read_;  // batches read with other limits
  std::uint64_t first_batch_ = 0;  // of step first_step_; since then, batches and shards are the current ones
  Index first_step_ = 0;
  std::unique_ptr<Prefetch> prefetch_;
  mutable std::string training_, validation_;

  std::uint64_t first_batch_of(Index step) const;
};

}  // namespace heed::detail

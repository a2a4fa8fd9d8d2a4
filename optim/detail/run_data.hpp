// The data of a run: what they are, and how far the run has read them. Internal.
#pragma once
#include <heed/optim/run_loop.hpp>
#include <memory>
#include <string>
#include <vector>

namespace heed::detail {

class RunData {
 public:
  RunData(Dataset data, const EvaluationSet& validation, const RunOptions& options);

  // The batch of a step's shard: batch `i` of those that it accumulates.
  Batch batch(Index step, std::uint64_t shard, std::uint64_t i);

  // What the data are, for people and to tell them apart; "none" of an empty validation set. Read once.
  const std::string& training() const;
  const std::string& validation() const;

  void store(Checkpoint& c, Index done) const;

  // Continues after step `done` of a checkpoint, with the next sample. Adds to `changes` what differs. Returns whether
  // evaluations are of another set than before. Error: other data, unless RunOptions::other_data; batches of another
  // size, where the data set cannot continue.
  bool resume(const Checkpoint& c, Index done, std::vector<std::string>& changes);

 private:
  const RunOptions& options_;
  Dataset data_;
  const EvaluationSet& evaluation_;
  std::vector<BatchesRead> read_;  // by runs with batches of another size
  std::uint64_t first_batch_ = 0;  // of step first_step_, from which on batches and shards are as they are now
  Index first_step_ = 0;
  std::unique_ptr<Prefetch> prefetch_;
  mutable std::string training_, validation_;

  std::uint64_t first_batch_of(Index step) const;
};

}  // namespace heed::detail

// The steps of a run. Internal.
#pragma once
#include <functional>
#include <heed/core/random.hpp>
#include <heed/optim/detail/rank_step.hpp>
#include <heed/optim/detail/run_optimizers.hpp>
#include <heed/optim/detail/run_state.hpp>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace heed::detail {

// Why a run may end after a step.
struct RunEnd {
  bool asked = false, out_of_time = false;
};

class RunSteps {
 public:
  RunSteps(RunState& run, const RunOptimizers& optimizers) : run_(run), optimizers_(optimizers) {}

  // Makes the next step of `run`, which it adds to its history. Where there are several ranks, each asks `end` when its
  // gradients are done, and all get to know of all.
  RunStep make(const std::function<RunEnd()>& end);
  const RunEnd& end_of_any() const { return end_; }  // of all ranks, in the last step; one process tells nothing

  // For values of other ranks. What reads all of them waits here, and not in the chunks of a loop.
  void await_values() const {
    for (const auto& [first, step] : rank_steps_) step->wait();
  }

  double seconds() const { return seconds_; }  // of all steps that it made
  double tokens_per_second() const { return of_tokens_ ? read_per_second() : 0; }
  double samples_per_second() const { return samples_ / seconds_; }
  double read_per_second() const { return read_ / seconds_; }  // Batch::read()
  // RunResult::loss_unit, of the first loss of a step.
  const std::string& loss_unit() const { return loss_unit_; }

 private:
  using Loss = std::function<Tensor(const Batch&)>;
  // Of a step: targets that count, what Batch::read() and Batch::samples() give, batches whose targets are of tokens,
  // batches with tensors.
  using Totals = std::function<const std::vector<double>&()>;
  // A part of a step: its batches, and where dropout's numbers are.
  struct Shard {
    std::vector<Batch> batches;
    Rng rng;
  };
  // Sums over the batches of a shard: of their weights, and of their losses times their weights / divisor of the step.
  struct ShardSums {
    double loss = 0, weight = 0;
  };
  struct Applied {
    double norm, scale;  // of the gradient; what it and the loss were multiplied by
  };

  RunState& run_;
  const RunOptimizers& optimizers_;
  std::map<std::size_t, std::unique_ptr<RankStep>> rank_steps_;  // by the first update of their loss
  RunEnd end_;
  double lr_ = 0;  // of the loss that is followed
  double seconds_ = 0, read_ = 0, samples_ = 0;
  bool of_tokens_ = false;
  std::string loss_unit_;

  std::vector<Shard> shards() const;
  void follow_loss(std::size_t first, std::size_t end, std::vector<Shard>& shards, const Totals& totals,
                   const std::function<RunEnd()>& end_here, RunStep& made);
  RankStep* begin_rank_step(std::size_t first);
  std::vector<ShardSums> gradients_of(const Loss& loss, std::vector<Shard>& shards, const Totals& totals,
                                      RankStep* step);
  ShardSums gradients_of(const Loss& loss, const std::vector<Batch>& batches, const Totals& totals, RankStep* step);
  bool is_one_batch() const { return run_.options.shards * run_.options.accumulate == 1; }
  std::string advice() const;
  double checked_norm(Optimizer& optimizer, RankStep* step, std::span<double> of_shards);
  Applied apply(std::size_t first, std::size_t end, RankStep* step, const std::vector<ShardSums>& sums,
                double counted);
  void start_loss(const std::vector<ShardSums>& sums, const std::function<RunEnd()>& end);
  double finish_loss();
};

void check_loss(const Tensor& loss);  // of a batch: Error where it is not one number

}  // namespace heed::detail

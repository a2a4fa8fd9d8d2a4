// The steps of run(): batches, gradients, optimizer steps and averages. Private to optim/run.
#pragma once
#include <functional>
#include <heed/autograd/detail/running_statistics.hpp>
#include <heed/core/random.hpp>
#include <heed/optim/ranks/step_gradients.hpp>
#include <heed/optim/run/state.hpp>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace heed::detail {

// Reasons to end a run after a step.
struct RunEnd {
  bool stop = false, out_of_time = false;
};

// Makes the steps of a run.
class RunSteps {
 public:
  explicit RunSteps(RunState& run) : run_(run) {}

  // Makes the next step of `run` and adds it to the history. Each rank calls `end` when its gradients are done, and all
  // ranks get the combined flags.
  RunStep make(const std::function<RunEnd()>& end);
  const RunEnd& end_of_any() const { return end_; }  // over all ranks, from the last step

  // Waits for values from other ranks. Code that reads all values waits here, so that it does not wait in chunks of a
  // loop.
  void await_values() const {
    for (const auto& [first, gradients] : gradients_) gradients->wait();
  }

  double seconds() const { return seconds_; }  // of all steps made
  double tokens_per_second() const { return of_tokens_ ? read_per_second() : 0; }
  double samples_per_second() const { return samples_ / seconds_; }
  double read_per_second() const { return read_ / seconds_; }  // Batch::read()
  // RunResult::loss_unit, of the first loss of a step.
  const std::string& loss_unit() const { return loss_unit_; }

 private:
  using Loss = std::function<Tensor(const Batch&)>;
  // Sums over the batches of a step: counted targets, Batch::read(), Batch::samples(), batches with token targets,
  // batches with tensors.
  using Totals = std::function<const std::vector<double>&()>;
  // A part of a step: its batches, and the generator of its dropout.
  struct Shard {
    std::vector<Batch> batches;
    Rng rng;
  };
  // Sums over the batches of a shard: their losses times weight / divisor of the step, and their weights.
  struct ShardSums {
    double loss = 0, weight = 0;
  };
  struct Applied {
    double norm, scale;  // norm of the gradient; factor by which it and the loss were multiplied
  };

  RunState& run_;
  std::map<std::size_t, std::unique_ptr<StepGradients>> gradients_;  // of each loss, by its first update
  RunEnd end_;
  double lr_ = 0;  // learning rate of the first update of the current loss
  double seconds_ = 0, read_ = 0, samples_ = 0;
  bool of_tokens_ = false;
  std::string loss_unit_;

  std::vector<Shard> shards() const;
  void follow_loss(std::size_t first, std::size_t end, std::vector<Shard>& shards, const Totals& totals,
                   const std::function<RunEnd()>& end_here, RunStep& made);
  std::vector<ShardSums> compute(const Loss& loss, std::vector<Shard>& shards, const Totals& totals,
                                 StepGradients& gradients);
  ShardSums compute(const Loss& loss, const Shard& shard, bool is_last, const Totals& totals, StepGradients& gradients);
  void update_running(std::vector<StatisticsUpdate>& here, bool of_any);
  bool is_one_batch() const { return run_.options.shards * run_.options.accumulate == 1; }
  std::string advice() const;
  double checked_norm(const Optimizer& optimizer, StepGradients& gradients, std::span<double> of_shards) const;
  Applied apply(std::size_t first, std::size_t end, StepGradients& gradients, const std::vector<ShardSums>& sums,
                double counted);
};

void check_loss(const Tensor& loss);  // throws Error unless the loss of a batch is one number

}  // namespace heed::detail

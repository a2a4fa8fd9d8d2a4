// The gradients of a step of run(): summed over the shards of all ranks, and applied by the optimizers. Private to
// optim.
#pragma once
#include <heed/autograd/tape.hpp>
#include <heed/optim/ranks/gradient_tree.hpp>
#include <span>
#include <vector>

namespace heed::detail {

// The gradients of one loss, in all steps of a run. A run chooses one of two implementations when it begins:
// LocalGradients for one rank, RankGradients for several. The order of calls in a step, with the gradients of a shard
// in the parameters:
//   begin(); add_shard() after each shard except the last; finish(); norm() and apply() of each optimizer
class StepGradients {
 public:
  virtual ~StepGradients() = default;

  virtual void begin() {}
  virtual void add_shard() = 0;
  virtual void watch(Tape&) {}  // call for the last tape of the last shard, before backward
  // Sums the gradients over all shards. Afterwards, parameters have the same gradients in any number of ranks: all
  // items, or with several ranks those that this rank updates.
  virtual void finish() = 0;
  // The norm of all gradients of an optimizer. `of_shards`: one number per shard; those of this rank's shards are set,
  // and the others are set by norm(). Empty: none. Throws Error if no model owns one of the parameters any more.
  double norm(const Optimizer& optimizer, std::span<double> of_shards = {});
  // Throws Error that names the parameter, after norm() of this optimizer.
  [[noreturn]] void fail_non_finite(const Optimizer& optimizer, double norm) const;
  // The step of an optimizer. New values of other ranks may arrive later: reading them waits (Arrival).
  virtual void apply(Optimizer& optimizer, double gradient_scale) = 0;
  virtual void wait() {}  // returns when all values have arrived

 protected:
  Chunks chunks_;             // of the last norm()
  std::vector<double> sums_;  // sum of squares of each chunk

  // Sets sums_, and the numbers of other ranks in `of_shards`.
  virtual void sum_squares(const Optimizer& optimizer, std::span<double> of_shards) = 0;
};

// The gradients of one rank, which computes all shards.
class LocalGradients final : public StepGradients {
 public:
  LocalGradients(const std::vector<DividedOptimizer>& optimizers, DType communication)
      : tree_(optimizers, communication) {}

  void add_shard() override { tree_.add_shard(); }
  void finish() override { tree_.finish(); }
  void apply(Optimizer& optimizer, double gradient_scale) override;

 private:
  GradientTree tree_;

  void sum_squares(const Optimizer& optimizer, std::span<double>) override {
    squares_of(optimizer.trained_parameters(), chunks_, sums_);
  }
};

}  // namespace heed::detail

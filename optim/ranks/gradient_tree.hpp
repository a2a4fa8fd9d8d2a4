// Sums the gradients of a step's shards, in an order that does not depend on the rank or thread that computed them.
// Private to optim/ranks.
#pragma once
#include <heed/optim/ranks/division.hpp>
#include <vector>

namespace heed::detail {

// A binary tree over n shards: the left part has the largest power of two below n, and both parts are such trees.
// Shards are added in order. After k shards, the tree holds one sum per 1 bit of k. If ranks send sums in bfloat16,
// each sum except the root is rounded to bfloat16 before it is added to another, whether it is sent or not.
class GradientTree {
 public:
  // For the parameters that these optimizers train. Call zero_grad() on the optimizers before each step.
  GradientTree(const std::vector<DividedOptimizer>& optimizers, DType communication);

  // Takes the gradients from the parameters, as those of the next shard. A parameter without a gradient adds nothing to
  // its sums. Call after each shard except the last.
  void add_shard();
  // Gives the parameters the sums over all shards, of which the last has its gradients in the parameters.
  void finish();

  // For ranks, which continue the sum: takes the sum of a parameter over the added shards and the last shard, whose
  // gradient the parameter has and then loses. Undefined if no shard has a gradient.
  Tensor take_sum(std::size_t parameter);
  // Joins two sums of a chunk in the tree: left += right, after rounding each if sums are rounded. Null means no sum.
  // Returns the result.
  template <class T>
  T* join(T* left, T* right, Index count) const;
  bool rounds() const { return rounds_; }
  void clear() { sums_.clear(); }  // call when all sums are taken

  const std::vector<Trained>& parameters() const { return parameters_; }  // of all optimizers

 private:
  struct Sum {
    Index shards = 0;
    std::vector<Tensor> gradients;  // [parameter]; undefined if there is none
  };
  std::vector<Trained> parameters_;
  std::vector<Sum> sums_;  // each over more shards than the next sum
  bool rounds_;

  void join_last_two();
  bool has_work(const Tensor& left, const Tensor& right) const;
  void join_chunk(const Tensor& left, const Tensor& right, const Chunk& chunk) const;
};

}  // namespace heed::detail

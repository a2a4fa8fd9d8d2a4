// The gradients of a step's shards, summed in an order that does not depend on who computed them.
#pragma once
#include <heed/optim/optimizer.hpp>
#include <vector>

namespace heed::detail {

// A binary tree over n shards: the left part is the largest power of two below n, and each part is such a tree. Shards
// come one after another; of those that came, as many sums are held as their number has bits that are 1. Where ranks
// send sums in bfloat16, each but the last is rounded to it before it is added to another, whether it is sent or not.
class GradientTree {
 public:
  // Of the parameters that these optimizers train, whose gradients must be zero_grad().
  explicit GradientTree(const std::vector<Optimizer*>& optimizers, DType communication = DType::float32);

  // Takes the gradients that the parameters hold, as those of the next shard; they have none afterwards. A parameter
  // that no loss of a shard depends on has no part in its sums.
  void add_shard();
  // The parameters hold the sum over all shards.
  void finish();

  // Where ranks sum on: of one parameter the sum over the shards that came, and over the next one, whose gradient the
  // parameter holds, and does not afterwards. Undefined: none of them has one.
  Tensor take_sum(std::size_t parameter);
  // A join of the tree, of a chunk: left += right. Gives the sum; where one of them is null, which is none, the other.
  template <class T>
  T* join(T* left, T* right, Index count) const;
  bool rounds() const { return rounds_; }
  void clear() { sums_.clear(); }  // when all of them are taken

  // Where a parameter stands in its optimizer.
  struct Place {
    const Optimizer* optimizer;
    std::size_t index;
  };
  const std::vector<Trained>& parameters() const { return parameters_; }
  const Place& place(std::size_t parameter) const { return places_[parameter]; }

 private:
  struct Sum {
    Index shards = 0;
    std::vector<Tensor> gradients;  // by parameter; undefined: none
  };
  std::vector<Trained> parameters_;
  std::vector<Place> places_;  // by parameter
  std::vector<Sum> sums_;      // each of more shards than the next
  bool rounds_;

  void join_last_two();
  bool has_work(const Tensor& left, const Tensor& right) const;
  void join_chunk(const Tensor& left, const Tensor& right, const Chunk& chunk) const;
};

}  // namespace heed::detail

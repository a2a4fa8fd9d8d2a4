// The gradients of a step's shards, summed in an order that does not depend on who computed them.
#pragma once
#include <heed/optim/detail/division.hpp>
#include <heed/optim/optimizer.hpp>
#include <vector>

namespace heed::detail {

// A binary tree over n shards: the left part is the largest power of two below n, and each part is such a tree. Shards
// come one after another; of those that came, as many sums are held as their number has bits that are 1.
class GradientTree {
 public:
  // Of the parameters that these optimizers train, whose gradients must be zero_grad().
  explicit GradientTree(const std::vector<const Optimizer*>& optimizers);

  // Takes the gradients that the parameters hold, as those of the next shard; they have none afterwards. A parameter
  // that no loss of a shard depends on has no part in its sums.
  void add_shard();
  // The parameters hold the sum over all shards.
  void finish();
  // The same where each of the ranks, which call it together, had its shards of the division: a parameter that has a
  // gradient on one of them has one on all, and of that each rank has the sum in the stretch that its optimizer steps.
  // Each sends every other rank that one's stretch, a bucket of some parameters at a time.
  void finish(Ranks& ranks, const ShardDivision& shards);

 private:
  struct Sum {
    Index shards = 0;
    std::vector<Tensor> gradients;  // by parameter; undefined: none
  };
  // Where a parameter stands in its optimizer.
  struct Place {
    const Optimizer* optimizer;
    std::size_t index;
  };
  // A part of a stretch of each rank, of one parameter: the k-th kBucket items.
  struct Piece {
    std::size_t parameter;
    Index k;
  };
  std::vector<Trained> parameters_;
  std::vector<Place> places_;  // by parameter
  std::vector<Sum> sums_;      // each of more shards than the next

  void join_last_two();
  Stretch piece_of(const Piece& piece, int rank) const;
  void exchange(Ranks& ranks, const ShardDivision& shards, const std::vector<std::vector<bool>>& has,
                std::span<const Piece> bucket);
};

}  // namespace heed::detail

// The division of a run among its ranks: the shards that each rank computes, and the part of each parameter that each
// rank updates. Private to optim/ranks.
#pragma once
#include <heed/optim/optimizers/optimizer.hpp>
#include <heed/optim/ranks/ranks.hpp>
#include <utility>
#include <vector>

namespace heed::detail {

// The tree over the shards of a step (gradient_tree.hpp), cut into one node per rank: the largest node, the first of
// equal nodes, is split until there are enough. Each rank computes the shards of one node, so its sum is the sum of
// this node.
struct ShardDivision {
  std::vector<Index> begins;               // [ranks + 1]: rank r has the shards from begins[r] to begins[r + 1]
  std::vector<std::pair<int, int>> joins;  // in order: sum of `first` += sum of `second`; rank 0 has the total
};
ShardDivision divide_shards(Index shards, int ranks);  // throws Error if there are fewer shards than ranks

// The stretch of each parameter of an optimizer that belongs to each rank: the rank updates it and keeps its state. A
// parameter that is updated as a whole (all of Adafactor, matrices of Muon) belongs to one rank. The chunks of other
// parameters are distributed. All ranks have nearly the same number of items. Source: Rajbhandari, Rasley, Ruwase, He,
// "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", 2020, section 5.1.
class Division {
 public:
  // `whole`: [parameter], whether it is updated as a whole. `loads`: [ranks], items of each rank from optimizers before
  // this one; updated.
  Division(const std::vector<Trained>& parameters, const std::vector<bool>& whole, std::vector<Index>& loads);
  explicit Division(std::vector<std::vector<Stretch>> stretches) : stretches_(std::move(stretches)) {}

  const Stretch& of(std::size_t parameter, int rank) const {
    return stretches_[parameter][static_cast<std::size_t>(rank)];
  }
  std::vector<Stretch> of_rank(int rank) const;  // [parameter]
  // The part that a rank keeps of a state of this parameter. The state has `state_numel` items.
  Stretch kept(std::size_t parameter, int rank, Index state_numel) const {
    return part_of_state(of(parameter, rank), stretches_[parameter].back().end, state_numel);
  }
  int owner_of(const Chunk& chunk) const;  // the rank whose stretch contains the chunk

 private:
  std::vector<std::vector<Stretch>> stretches_;  // [parameter][rank], in the order of items
};

// An optimizer of a run, and its division among the ranks.
struct DividedOptimizer {
  Optimizer* optimizer;
  Division division;
};

// Divides optimizers among the ranks, which call it together. An optimizer that these ranks divided in an earlier run
// keeps its division. Throws Error if other ranks did.
std::vector<DividedOptimizer> divide(Ranks& ranks, const std::vector<Optimizer*>& optimizers);

}  // namespace heed::detail

// The division of a run among its ranks: the shards that each rank computes, and the part of each parameter that each
// rank steps. Internal.
#pragma once
#include <heed/core/dtype.hpp>
#include <heed/core/tensor.hpp>
#include <heed/optim/optimizers/parameter_group.hpp>
#include <heed/optim/ranks/messages.hpp>
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

// The items of a parameter, in row-major order, that one rank steps and keeps the state of. Begin and end are borders
// of chunks (Chunks::kLongest).
struct Stretch {
  Index begin = 0, end = 0;
  Index count() const { return end - begin; }
};

// The address of an item of a contiguous tensor.
inline char* address_of(const Tensor& x, Index item) {
  return static_cast<char*>(x.raw()) + static_cast<std::size_t>(item) * size_of(x.dtype());
}

// The stretch of each parameter of an optimizer that belongs to each rank. A parameter that is updated as a whole (all
// of Adafactor, matrices of Muon) belongs to one rank. The chunks of other parameters are distributed. All ranks have
// nearly the same number of items.
class Division {
 public:
  // `whole`: [parameter], whether it is updated as a whole. `loads`: [ranks], items of each rank from optimizers before
  // this one; updated.
  Division(const std::vector<Trained>& parameters, const std::vector<bool>& whole, std::vector<Index>& loads);

  int ranks() const { return static_cast<int>(stretches_.empty() ? 0 : stretches_[0].size()); }
  // The rank of a parameter that is updated as a whole; -1 for any other parameter.
  int owner(std::size_t parameter) const { return owners_[parameter]; }
  const Stretch& of(std::size_t parameter, int rank) const {
    return stretches_[parameter][static_cast<std::size_t>(rank)];
  }
  // The part of a state of this parameter that a rank keeps. The state has `numel` items.
  Stretch kept(std::size_t parameter, int rank, Index numel) const {
    if (owner(parameter) < 0) return of(parameter, rank);
    return {0, owner(parameter) == rank ? numel : 0};
  }
  int owner_of(const Chunk& chunk) const;  // the rank whose stretch contains the chunk

 private:
  std::vector<int> owners_;                      // [parameter]
  std::vector<std::vector<Stretch>> stretches_;  // [parameter][rank]
};

// Exchanges the stretches of tensors [parameter], so that each rank has all items. Skips undefined tensors.
void all_gather(Ranks& ranks, const Division& division, const std::vector<Tensor>& values);

}  // namespace heed::detail

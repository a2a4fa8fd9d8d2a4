// How a run is divided among its ranks: who computes which shards of a step, who keeps and steps which part of a
// parameter. Internal.
#pragma once
#include <heed/core/dtype.hpp>
#include <heed/core/tensor.hpp>
#include <heed/optim/detail/messages.hpp>
#include <heed/optim/parameter_group.hpp>
#include <utility>
#include <vector>

namespace heed::detail {

// The tree over the shards of a step (gradient_tree.hpp), cut into as many of its nodes as there are ranks: the largest
// node, the first of equals, is split until there are enough. Each rank computes the shards of one node, so that its
// sum is one that the tree has.
struct ShardDivision {
  std::vector<Index> begins;                // [ranks + 1]: rank r has the shards from begins[r] to begins[r + 1]
  std::vector<std::pair<int, int>> joins;   // in order: the sum at the first rank += that at the second; 0 has all
};
ShardDivision divide_shards(Index shards, int ranks);  // Error: fewer shards than ranks

// The items of a parameter, in row-major order, that one rank steps and keeps the state of. Begins and ends are those
// of chunks (Chunks::kLongest).
struct Stretch {
  Index begin = 0, end = 0;
  Index count() const { return end - begin; }
};

// Where an item of a tensor without gaps lies.
inline char* address_of(const Tensor& x, Index item) {
  return static_cast<char*>(x.raw()) + static_cast<std::size_t>(item) * size_of(x.dtype());
}

// Which rank has which stretch of each parameter of an optimizer. One that is stepped as a whole (Adafactor's, the
// matrices of Muon) is one rank's, the chunks of others are dealt out: all ranks have nearly the same number of items.
class Division {
 public:
  // `whole`: by parameter. `loads`: items by rank so far, of optimizers before this one; goes on.
  Division(const std::vector<Trained>& parameters, const std::vector<bool>& whole, std::vector<Index>& loads);

  int ranks() const { return static_cast<int>(stretches_.empty() ? 0 : stretches_[0].size()); }
  // Whose a parameter is that is stepped as a whole; -1: it is not.
  int owner(std::size_t parameter) const { return owners_[parameter]; }
  const Stretch& of(std::size_t parameter, int rank) const {
    return stretches_[parameter][static_cast<std::size_t>(rank)];
  }
  // What a rank keeps of a state of that parameter, which has `numel` items.
  Stretch kept(std::size_t parameter, int rank, Index numel) const {
    if (owner(parameter) < 0) return of(parameter, rank);
    return {0, owner(parameter) == rank ? numel : 0};
  }
  int owner_of(const Chunk& chunk) const;

 private:
  std::vector<int> owners_;
  std::vector<std::vector<Stretch>> stretches_;  // [parameter][rank]
};

// The parts of these tensors that other ranks have, into this rank's tensors: [parameter], undefined where nothing is
// asked for.
void all_gather(Ranks& ranks, const Division& division, const std::vector<Tensor>& values);

}  // namespace heed::detail

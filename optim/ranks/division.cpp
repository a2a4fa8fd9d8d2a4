// The division of a run among its ranks.
#include <algorithm>
#include <bit>
#include <cstring>
#include <heed/core/memory.hpp>
#include <heed/optim/ranks/division.hpp>
#include <heed/optim/ranks/messages.hpp>
#include <numeric>

namespace heed::detail {
namespace {

// Shards of the left part of a tree over n >= 2 shards: the largest power of two below n.
Index left_of(Index n) { return static_cast<Index>(std::bit_floor(static_cast<std::uint64_t>(n - 1))); }

// Adds the joins of the ranks whose shards form this node: first in the left part, then in the right part, then of both
// parts.
void add_joins(ShardDivision& d, Index begin, Index end) {
  const auto at = [&d](Index shard) { return std::lower_bound(d.begins.begin(), d.begins.end(), shard); };
  const auto first = at(begin);
  if (*(first + 1) == end) return;  // the node of one rank
  const Index middle = begin + left_of(end - begin);
  add_joins(d, begin, middle);
  add_joins(d, middle, end);
  d.joins.emplace_back(first - d.begins.begin(), at(middle) - d.begins.begin());
}

}  // namespace

ShardDivision divide_shards(Index shards, int ranks) {
  require(shards >= ranks, "run: shards is ", shards, ", but there are ", ranks,
          " ranks; there must be at least one shard per rank");
  ShardDivision d;
  std::vector<Index> nodes = {shards};
  while (static_cast<int>(nodes.size()) < ranks) {
    const auto largest = std::max_element(nodes.begin(), nodes.end());
    const Index left = left_of(*largest);
    *largest -= left;
    nodes.insert(largest, left);
  }
  d.begins = {0};
  for (const Index n : nodes) d.begins.push_back(d.begins.back() + n);
  add_joins(d, 0, shards);
  return d;
}

Division::Division(const std::vector<Trained>& parameters, const std::vector<bool>& whole, std::vector<Index>& loads) {
  const auto ranks = static_cast<Index>(loads.size());
  std::vector<Index> order(loads.size());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Index numel = parameters[i].tensor.numel(), longest = Chunks::kLongest;
    const Index chunks = whole[i] ? 1 : (numel + longest - 1) / longest;
    // All ranks get the same number of chunks. The ranks with the fewest items so far get one more each, from the rest.
    std::iota(order.begin(), order.end(), Index{0});
    std::stable_sort(order.begin(), order.end(), [&](Index a, Index b) {
      return loads[static_cast<std::size_t>(a)] < loads[static_cast<std::size_t>(b)];
    });
    std::vector<Index> share(loads.size(), chunks / ranks);
    for (Index k = 0; k < chunks % ranks; ++k) ++share[static_cast<std::size_t>(order[static_cast<std::size_t>(k)])];
    std::vector<Stretch>& list = stretches_.emplace_back();
    Index begin = 0, done = 0;
    for (std::size_t r = 0; r < loads.size(); ++r) {
      done += share[r];
      const Index end = done == chunks ? numel : done * longest;
      list.push_back({begin, end});
      loads[r] += end - begin;
      begin = end;
    }
  }
}

int Division::owner_of(const Chunk& chunk) const {
  const std::vector<Stretch>& list = stretches_[static_cast<std::size_t>(chunk.parameter)];
  int r = 0;
  while (list[static_cast<std::size_t>(r)].end <= chunk.begin) ++r;
  return r;
}

std::vector<Stretch> Division::of_rank(int rank) const {
  std::vector<Stretch> list;
  for (const auto& stretches : stretches_) list.push_back(stretches[static_cast<std::size_t>(rank)]);
  return list;
}

std::vector<DividedOptimizer> divide(Ranks& ranks, const std::vector<Optimizer*>& optimizers) {
  std::vector<Stretch> mine;
  for (const Optimizer* o : optimizers) mine.insert(mine.end(), o->parts().begin(), o->parts().end());
  const std::string bytes(reinterpret_cast<const char*>(mine.data()), mine.size() * sizeof(Stretch));
  std::vector<std::string> all = all_gather(ranks, bytes);
  for (std::string& x : all)
    if (x.size() != bytes.size()) x = bytes;  // the rank has other optimizers, which the run reports later
  std::vector<DividedOptimizer> divided;
  std::vector<Index> loads(all.size());
  std::size_t at = 0;  // bytes of the optimizers before this one
  for (Optimizer* o : optimizers) {
    const std::vector<Trained>& parameters = o->trained_parameters();
    std::vector<std::vector<Stretch>> parts(parameters.size(), std::vector<Stretch>(all.size()));
    std::vector<bool> whole;
    bool is_undivided = true, is_divided = true;  // each rank has all items; each item belongs to one rank
    for (std::size_t i = 0; i < parameters.size(); ++i, at += sizeof(Stretch)) {
      Index end = 0;
      for (std::size_t r = 0; r < all.size(); ++r) {
        Stretch& s = parts[i][r];
        std::memcpy(&s, all[r].data() + at, sizeof s);
        is_undivided = is_undivided && s.count() == parameters[i].tensor.numel();
        is_divided = is_divided && std::exchange(end, s.end) == s.begin;
      }
      is_divided = is_divided && end == parameters[i].tensor.numel();
      whole.push_back(o->is_updated_whole(i));
    }
    require(is_undivided || is_divided, "run: ", o->name(),
            " is sharded over other ranks than those of this run; create a new optimizer");
    divided.push_back({o, is_undivided ? Division(parameters, whole, loads) : Division(std::move(parts))});
    if (is_undivided) o->keep(divided.back().division.of_rank(ranks.rank()));
  }
  if (ranks.size() > 1) release_cached_memory();  // memory of states that other ranks keep
  return divided;
}

}  // namespace heed::detail

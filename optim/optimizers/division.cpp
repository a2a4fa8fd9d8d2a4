// The division of a run among its ranks, and the exchange of divided values.
#include <algorithm>
#include <bit>
#include <heed/optim/optimizers/division.hpp>
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
    const Index numel = parameters[i].value.numel(), longest = Chunks::kLongest;
    const Index chunks = whole[i] ? 1 : (numel + longest - 1) / longest;
    // All ranks get the same number of chunks. The ranks with the fewest items so far get one more each, from the rest.
    std::iota(order.begin(), order.end(), Index{0});
    std::stable_sort(order.begin(), order.end(), [&](Index a, Index b) {
      return loads[static_cast<std::size_t>(a)] < loads[static_cast<std::size_t>(b)];
    });
    std::vector<Index> share(loads.size(), chunks / ranks);
    for (Index k = 0; k < chunks % ranks; ++k) ++share[static_cast<std::size_t>(order[static_cast<std::size_t>(k)])];
    owners_.push_back(whole[i] ? static_cast<int>(order[0]) : -1);
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

void all_gather(Ranks& ranks, const Division& division, const std::vector<Tensor>& values) {
  Messages all;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!values[i].defined()) continue;
    const auto bytes = [&](const Stretch& s) {
      return static_cast<std::size_t>(s.count()) * size_of(values[i].dtype());
    };
    const Stretch& mine = division.of(i, ranks.rank());
    for (int r = 0; r < ranks.size(); ++r) {
      if (r == ranks.rank()) continue;
      const Stretch& theirs = division.of(i, r);
      all.send(r, address_of(values[i], mine.begin), bytes(mine));
      all.receive(r, address_of(values[i], theirs.begin), bytes(theirs));
    }
  }
  ranks.exchange(all.out, all.in);
}

}  // namespace heed::detail

#include <algorithm>
#include <cstring>
#include <heed/optim/detail/gradient_tree.hpp>
#include <heed/optim/detail/with_kernels.hpp>
#include <utility>

namespace heed::detail {
namespace {

// Items of a rank's stretches that are exchanged at once: memory for so many of each other rank.
constexpr Index kBucket = Index{1} << 20;

}  // namespace

GradientTree::GradientTree(const std::vector<const Optimizer*>& optimizers) {
  for (const Optimizer* o : optimizers)
    for (std::size_t i = 0; i < o->trained_parameters().size(); ++i) {
      parameters_.push_back(o->trained_parameters()[i]);
      places_.push_back({o, i});
    }
}

void GradientTree::add_shard() {
  Sum shard = {1, std::vector<Tensor>(parameters_.size())};
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    ParameterInfo& p = parameters_[i].info();
    if (!std::exchange(p.has_gradient, false)) continue;
    shard.gradients[i] = std::exchange(p.gradient, Tensor());
  }
  sums_.push_back(std::move(shard));
  while (sums_.size() > 1 && sums_[sums_.size() - 2].shards == sums_.back().shards) join_last_two();
}

void GradientTree::finish() {
  while (sums_.size() > 1) join_last_two();
  for (std::size_t i = 0; i < parameters_.size() && !sums_.empty(); ++i) {
    ParameterInfo& p = parameters_[i].info();
    p.gradient = std::move(sums_[0].gradients[i]);
    p.has_gradient = p.gradient.defined();
  }
  sums_.clear();
}

void GradientTree::join_last_two() {
  const Sum right = std::move(sums_.back());
  sums_.pop_back();
  Sum& left = sums_.back();
  Chunks chunks;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    Tensor& sum = left.gradients[i];
    if (!sum.defined())
      sum = right.gradients[i];
    else if (right.gradients[i].defined())
      chunks.add(static_cast<int>(i), sum.numel());
  }
  chunks.run([&](Index, const Chunk& c) {
    const Tensor &sum = left.gradients[static_cast<std::size_t>(c.parameter)],
                 &more = right.gradients[static_cast<std::size_t>(c.parameter)];
    with_kernels(sum.dtype(), [&](auto zero, const auto& k) {
      using T = decltype(zero);
      k.add(sum.ptr<T>() + c.begin, more.ptr<T>() + c.begin, c.count);
    });
  });
  left.shards += right.shards;
}

Stretch GradientTree::piece_of(const Piece& piece, int rank) const {
  const Place& place = places_[piece.parameter];
  const Stretch& all = place.optimizer->division()->of(place.index, rank);
  const Index begin = std::min(all.end, all.begin + piece.k * kBucket);
  return {begin, std::min(all.end, begin + kBucket)};
}

void GradientTree::finish(Ranks& ranks, const ShardDivision& shards) {
  finish();  // of this rank's own
  std::string mine(parameters_.size(), '0');
  for (std::size_t i = 0; i < parameters_.size(); ++i) mine[i] = parameters_[i].info().has_gradient ? '1' : '0';
  std::vector<std::vector<bool>> has;  // [rank][parameter]
  for (const std::string& flags : all_gather(ranks, mine)) {
    has.emplace_back(flags.size());
    std::transform(flags.begin(), flags.end(), has.back().begin(), [](char c) { return c == '1'; });
  }
  std::vector<Piece> bucket;
  Index items = 0;
  const auto send = [&] {
    exchange(ranks, shards, has, bucket);
    bucket.clear(), items = 0;
  };
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (std::none_of(has.begin(), has.end(), [i](const std::vector<bool>& of_rank) { return of_rank[i]; })) continue;
    ParameterInfo& p = parameters_[i].info();
    if (!std::exchange(p.has_gradient, true) && !p.gradient.defined())
      p.gradient = Tensor::empty(p.shape, parameters_[i].value.dtype());
    Index longest = 0;
    for (int r = 0; r < ranks.size(); ++r)
      longest = std::max(longest, places_[i].optimizer->division()->of(places_[i].index, r).count());
    for (Index k = 0; k * kBucket < longest; ++k) {
      bucket.push_back({i, k});
      items += std::min(kBucket, longest - k * kBucket);
      if (items >= kBucket) send();
    }
  }
  send();
}

// Pieces of this rank's stretches are received from the others and joined; the others get theirs.
void GradientTree::exchange(Ranks& ranks, const ShardDivision& shards, const std::vector<std::vector<bool>>& has,
                            std::span<const Piece> bucket) {
  if (bucket.empty()) return;
  const int me = ranks.rank();
  const auto gradient = [&](std::size_t parameter) -> Tensor& { return parameters_[parameter].info().gradient; };
  const auto bytes = [&](const Piece& p, const Stretch& s) {
    return static_cast<std::size_t>(s.count()) * size_of(gradient(p.parameter).dtype());
  };
  const auto from = [&](const Piece& p, const Stretch& s) {
    return static_cast<char*>(gradient(p.parameter).raw()) +
           static_cast<std::size_t>(s.begin) * size_of(gradient(p.parameter).dtype());
  };
  std::size_t room = 0;  // of what one rank sends here
  const auto padded = [](std::size_t n) { return (n + 63) / 64 * 64; };
  for (const Piece& p : bucket) room += padded(bytes(p, piece_of(p, me)));
  Scratch<char> memory(room * static_cast<std::size_t>(ranks.size()));
  std::vector<Outgoing> out;
  std::vector<Incoming> in;
  std::size_t at = 0;
  for (const Piece& p : bucket) {
    const Stretch mine = piece_of(p, me);
    for (int r = 0; r < ranks.size(); ++r) {
      if (r == me) continue;
      const Stretch theirs = piece_of(p, r);
      if (theirs.count() > 0 && has[static_cast<std::size_t>(me)][p.parameter])
        out.push_back({r, from(p, theirs), bytes(p, theirs)});
      if (mine.count() > 0 && has[static_cast<std::size_t>(r)][p.parameter])
        in.push_back({r, memory.data() + static_cast<std::size_t>(r) * room + at, bytes(p, mine)});
    }
    at += padded(bytes(p, mine));
  }
  ranks.exchange(out, in);

  Chunks chunks;
  std::vector<std::size_t> places;  // of the pieces in a rank's memory
  at = 0;
  for (std::size_t i = 0; i < bucket.size(); ++i) {
    const Stretch mine = piece_of(bucket[i], me);
    chunks.add(static_cast<int>(i), mine.count());
    places.push_back(at);
    at += padded(bytes(bucket[i], mine));
  }
  chunks.run([&](Index, const Chunk& c) {
    const auto i = static_cast<std::size_t>(c.parameter);
    const Piece& p = bucket[i];
    with_kernels(gradient(p.parameter).dtype(), [&](auto zero, const auto& kernels) {
      using T = decltype(zero);
      T* const own = reinterpret_cast<T*>(from(p, piece_of(p, me))) + c.begin;
      std::vector<T*> sums(has.size());  // null: none
      for (std::size_t r = 0; r < sums.size(); ++r)
        if (has[r][p.parameter])
          sums[r] = static_cast<int>(r) == me
                        ? own
                        : reinterpret_cast<T*>(memory.data() + r * room + places[i]) + c.begin;
      for (const auto& [a, b] : shards.joins) {
        T *&left = sums[static_cast<std::size_t>(a)], *const right = sums[static_cast<std::size_t>(b)];
        if (left == nullptr)
          left = right;
        else if (right != nullptr)
          kernels.add(left, right, c.count);
      }
      if (sums[0] != own) std::memcpy(own, sums[0], static_cast<std::size_t>(c.count) * sizeof(T));
    });
  });
}

}  // namespace heed::detail

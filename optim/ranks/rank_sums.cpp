// The sums of several ranks: each rank receives the sums of the others over its stretch of a bucket, and joins them.
// The squares of the sums are gathered for their norm.
#include <algorithm>
#include <cstring>
#include <heed/optim/optimizers/with_kernels.hpp>
#include <heed/optim/ranks/rank_gradients.hpp>
#include <type_traits>
#include <utility>

namespace heed::detail {

// Whether any rank has gradient i. `has`: a list from each rank.
bool RankGradients::is_anywhere(const std::vector<std::string>& has, std::size_t i) {
  return std::any_of(has.begin(), has.end(), [i](const std::string& of_rank) { return of_rank[i] == '1'; });
}

// Sends each other rank a list of the gradients that this rank has, and its sums over the other's stretch.
void RankGradients::start(Bucket& b) {
  note_gradients(b);
  const std::size_t count = b.pieces.size(), me = static_cast<std::size_t>(ranks_.rank());
  Messages all;
  for (const int r : others_) {
    const auto other = static_cast<std::size_t>(r);
    all.send(r, b.has[me].data(), count);
    all.receive(r, b.has[other].data(), count);
    if (!shares_memory_[other]) continue;
    for (const Piece& p : b.pieces)
      b.here[other].push_back(address_of(progress_[p.parameter].sum, piece_of(p, r).begin));
    b.there[other].resize(count);
    all.send(r, b.here[other].data(), count * sizeof(char*));
    all.receive(r, b.there[other].data(), count * sizeof(char*));
  }
  send_sums(b, all);
  b.exchange = exchanges_.add(std::move(all), ExchangeThread::gradients);
}

// Lists the gradients that this rank has. For a missing gradient, a rank sends undefined values, which the others
// ignore.
void RankGradients::note_gradients(Bucket& b) {
  const std::size_t size = static_cast<std::size_t>(ranks_.size());
  b.has.assign(size, std::string(b.pieces.size(), '0'));
  b.arrived.resize(size), b.here.resize(size), b.there.resize(size);
  for (std::size_t i = 0; i < b.pieces.size(); ++i) {
    Progress& p = progress_[b.pieces[i].parameter];
    const Tensor& value = trained(b.pieces[i].parameter).tensor;
    if (p.here)
      b.has[static_cast<std::size_t>(ranks_.rank())][i] = '1';
    else if (!p.sum.defined())  // for all pieces of the parameter
      p.sum = Tensor::empty(value.shape(), value.dtype());
  }
}

// Adds the messages with sums, for ranks that do not read them in place.
void RankGradients::send_sums(Bucket& b, Messages& all) {
  const int me = ranks_.rank();
  std::vector<std::vector<MessageMemory::Place>> rounded(b.has.size());  // [rank][piece]
  for (const int r : others_) {
    const auto other = static_cast<std::size_t>(r);
    if (shares_memory_[other]) continue;
    b.arrived[other] = places(b.memory, b.pieces, me);
    if (tree_.rounds()) rounded[other] = places(b.memory, b.pieces, r);
  }
  b.memory.allocate();
  std::vector<Rounding> roundings;
  for (const int r : others_) {
    const auto other = static_cast<std::size_t>(r);
    for (std::size_t i = 0; i < b.arrived[other].size(); ++i) {
      const Piece& p = b.pieces[i];
      const Stretch theirs = piece_of(p, r);
      const char* bytes = address_of(progress_[p.parameter].sum, theirs.begin);
      if (tree_.rounds()) {
        bfloat16* const to = b.memory.at<bfloat16>(rounded[other][i]);
        roundings.push_back({to, reinterpret_cast<const float*>(bytes), theirs.count()});
        bytes = reinterpret_cast<const char*>(to);
      }
      all.send(r, bytes, bytes_sent(p, r));
      all.receive(r, b.memory.at<char>(b.arrived[other][i]), bytes_sent(p, me));
    }
  }
  round(roundings);
}

// The sums of a rank over a chunk of a piece: where they arrived, or copied to `space`.
template <class T>
T* RankGradients::sums_of(std::size_t rank, const Bucket& b, std::size_t piece, const Chunk& c, T* space) {
  if (shares_memory_[rank]) {
    const auto bytes = [](Index items) { return static_cast<std::size_t>(items) * sizeof(T); };
    ranks_.read(static_cast<int>(rank), b.there[rank][piece] + bytes(c.begin), space, bytes(c.count));
    return space;
  }
  const MessageMemory::Place place = b.arrived[rank][piece];
  if constexpr (std::is_same_v<T, float>)
    if (tree_.rounds()) {
      kernels::elementwise_table().bf16.widen(space, &b.memory.at<bfloat16>(place)[c.begin].bits, c.count);
      return space;
    }
  return b.memory.at<T>(place) + c.begin;
}

// Joins this rank's pieces: the sums of all ranks that have a gradient, in the order of the tree.
void RankGradients::join(Bucket& b) {
  const auto me = static_cast<std::size_t>(ranks_.rank());
  Chunks chunks;
  for (std::size_t i = 0; i < b.pieces.size(); ++i) {
    const std::size_t parameter = b.pieces[i].parameter;
    Progress& p = progress_[parameter];
    p.anywhere = is_anywhere(b.has, i);
    if (p.anywhere) chunks.add(static_cast<int>(i), piece_of(b.pieces[i], ranks_.rank()).count());
    p.squares.resize(static_cast<std::size_t>((p.sum.numel() + Chunks::kLongest - 1) / Chunks::kLongest));
    trained(parameter).info().gradient = p.sum;
  }
  constexpr std::size_t kChunkBytes = Chunks::kLongest * sizeof(double);
  std::vector<std::size_t> spaces(b.has.size());  // [rank]: offset of its copied chunk in the scratch memory
  std::size_t size = 0;
  for (std::size_t r = 0; r < spaces.size(); ++r)
    if (tree_.rounds() || shares_memory_[r]) spaces[r] = std::exchange(size, size + kChunkBytes);
  ThreadScratch<char> scratch(static_cast<Index>(size));
  chunks.run([&](Index, const Chunk& c) {
    const auto i = static_cast<std::size_t>(c.parameter);
    Progress& p = progress_[b.pieces[i].parameter];
    const Index begin = piece_of(b.pieces[i], ranks_.rank()).begin + c.begin;
    with_kernels(p.sum.dtype(), [&]<class T>(T, const auto& kernels) {
      T* const own = p.sum.template ptr<T>() + begin;
      const auto arrived = [&](std::size_t r) {
        return sums_of(r, b, i, c, reinterpret_cast<T*>(scratch.mine() + spaces[r]));
      };
      std::vector<T*> sums(b.has.size());  // null: no gradient
      for (std::size_t r = 0; r < sums.size(); ++r)
        if (b.has[r][i] == '1') sums[r] = r == me ? own : arrived(r);
      for (const auto& [x, y] : shards_.joins) {
        T*& left = sums[static_cast<std::size_t>(x)];
        left = tree_.join(left, sums[static_cast<std::size_t>(y)], c.count);
      }
      if (sums[0] != own) std::memcpy(own, sums[0], static_cast<std::size_t>(c.count) * sizeof(T));
      p.squares[static_cast<std::size_t>(begin / Chunks::kLongest)] = kernels.sum_squares(own, c.count);
    });
  });
  b.memory = {};
}

// Returns when all ranks that read this rank's sums in place have joined them.
void RankGradients::await_readers() {
  Messages all;
  char joined = 1;
  std::vector<char> theirs(shares_memory_.size());
  for (const int r : others_) {
    if (!shares_memory_[static_cast<std::size_t>(r)]) continue;
    all.send(r, &joined, 1);
    all.receive(r, &theirs[static_cast<std::size_t>(r)], 1);
  }
  if (!all.out.empty()) ranks_.exchange(all.out, all.in);
}

// ---- Norms ----

void RankGradients::sum_squares(const Optimizer& o, std::span<double> of_shards) {
  const std::size_t first = first_.at(&o);
  const Division& division = owners_[first]->division;
  sums_.assign(static_cast<std::size_t>(chunks_.size()), 0.0);
  for (Index i = 0; i < chunks_.size(); ++i) {
    const Chunk& c = chunks_[i];
    if (division.owner_of(c) == ranks_.rank())
      sums_[static_cast<std::size_t>(i)] = progress_[first + static_cast<std::size_t>(c.parameter)]
                                               .squares[static_cast<std::size_t>(c.begin / Chunks::kLongest)];
  }
  gather_sums(division, of_shards);
}

// Gathers the sum of squares of each chunk from the rank that updates it, and the numbers of its shards.
void RankGradients::gather_sums(const Division& division, std::span<double> of_shards) {
  std::vector<std::vector<std::size_t>> chunks(static_cast<std::size_t>(ranks_.size()));  // [rank]
  for (Index i = 0; i < chunks_.size(); ++i)
    chunks[static_cast<std::size_t>(division.owner_of(chunks_[i]))].push_back(static_cast<std::size_t>(i));
  const auto shards_of = [&](std::size_t r) {
    if (of_shards.empty()) return of_shards;
    const auto begin = static_cast<std::size_t>(shards_.begins[r]),
               end = static_cast<std::size_t>(shards_.begins[r + 1]);
    return of_shards.subspan(begin, end - begin);
  };
  std::vector<Index> begins = {0};
  std::vector<double> by_rank;
  for (std::size_t r = 0; r < chunks.size(); ++r) {
    for (const std::size_t i : chunks[r]) by_rank.push_back(sums_[i]);
    for (const double x : shards_of(r)) by_rank.push_back(x);
    begins.push_back(static_cast<Index>(by_rank.size()));
  }
  all_gather(ranks_, by_rank, begins);
  auto number = by_rank.begin();
  for (std::size_t r = 0; r < chunks.size(); ++r) {
    for (const std::size_t i : chunks[r]) sums_[i] = *number++;
    for (double& x : shards_of(r)) x = *number++;
  }
}

}  // namespace heed::detail

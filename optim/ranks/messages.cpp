// Messages of an exchange between ranks, memory for them, and gathering of small data.
#include <heed/optim/ranks/messages.hpp>
#include <numeric>

namespace heed::detail {

MessageMemory::Place MessageMemory::add(std::size_t bytes) {
  constexpr std::size_t kLine = 64;
  const Place place = size_;
  size_ += (bytes + kLine - 1) / kLine * kLine;
  return place;
}

void MessageMemory::allocate() { block_ = std::make_unique<Scratch<char>>(size_); }

Messages gathering(const Ranks& ranks, std::span<double> numbers, std::span<const Index> begins) {
  const auto part = [&](int r) {
    const auto i = static_cast<std::size_t>(r);
    return numbers.subspan(static_cast<std::size_t>(begins[i]), static_cast<std::size_t>(begins[i + 1] - begins[i]));
  };
  const auto mine = part(ranks.rank());
  Messages all;
  for (int r = 0; r < ranks.size(); ++r) {
    if (r == ranks.rank()) continue;
    all.send(r, mine.data(), mine.size_bytes());
    all.receive(r, part(r).data(), part(r).size_bytes());
  }
  return all;
}

void all_gather(Ranks& ranks, std::span<double> numbers, std::span<const Index> begins) {
  const Messages all = gathering(ranks, numbers, begins);
  ranks.exchange(all.out, all.in);
}

std::vector<std::string> all_gather(Ranks& ranks, const std::string& mine) {
  const auto n = static_cast<std::size_t>(ranks.size()), me = static_cast<std::size_t>(ranks.rank());
  std::vector<Index> one_each(n + 1);
  std::iota(one_each.begin(), one_each.end(), Index{0});
  std::vector<double> sizes(n);
  sizes[me] = static_cast<double>(mine.size());
  all_gather(ranks, sizes, one_each);
  std::vector<std::string> all(n);
  Messages texts;
  for (std::size_t r = 0; r < n; ++r) {
    if (r == me) continue;
    all[r].resize(static_cast<std::size_t>(sizes[r]));
    texts.send(static_cast<int>(r), mine.data(), mine.size());
    texts.receive(static_cast<int>(r), all[r].data(), all[r].size());
  }
  ranks.exchange(texts.out, texts.in);
  all[me] = mine;
  return all;
}

}  // namespace heed::detail

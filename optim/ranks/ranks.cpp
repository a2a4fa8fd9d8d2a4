// Functions that all transports of ranks share.
#include <heed/core/check.hpp>
#include <heed/optim/ranks/exchange_thread.hpp>
#include <heed/optim/ranks/ranks.hpp>

namespace heed {

std::unique_ptr<Ranks::Exchange> Ranks::start(std::span<const Outgoing> out, std::span<const Incoming> in,
                                              int channel) {
  for (const Outgoing& o : out) bytes_sent_ += o.count;
  return begin(out, in, channel);
}

void Ranks::exchange(std::span<const Outgoing> out, std::span<const Incoming> in) {
  const std::unique_ptr<Exchange> e = start(out, in, 0);
  for (detail::Patience patience; e != nullptr && !e->done();) patience.wait();
}

void Ranks::read(int rank, const void*, void*, std::size_t) const {
  fail("ranks: rank ", rank_, " does not share memory with rank ", rank, " and cannot read from it");
}

}  // namespace heed

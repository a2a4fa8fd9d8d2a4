// Rows of associative recall and of swaps.
#include "examples/experiments/race_synthetic.hpp"

#include <heed/core/random.hpp>
#include <numeric>
#include <utility>
#include <vector>

namespace heed::examples {
namespace {

// Random streams: one per row.
constexpr std::uint64_t kRecall = std::uint64_t{0x3ACE2} << 44, kRecallHeldOut = std::uint64_t{0x3ACE3} << 44,
                        kTracking = std::uint64_t{0x3ACE4} << 44, kTrackingHeldOut = std::uint64_t{0x3ACE5} << 44;

Batch empty_batch(Index rows, Index length, Index counted) {
  return {Tensor::empty({rows, length}, DType::int32), Tensor::full({rows, length}, kIgnoreIndex, DType::int32),
          rows * counted};
}

std::int32_t id(Index n) { return static_cast<std::int32_t>(n); }

}  // namespace

Batch RecallBatches::batch(std::uint64_t seed, std::uint64_t step) const {
  Batch b = empty_batch(rows, kLength, kPairs);
  for (Index row = 0; row < rows; ++row) {
    Rng rng(seed, (held_out ? kRecallHeldOut : kRecall) + step * static_cast<std::uint64_t>(rows) +
                      static_cast<std::uint64_t>(row));
    const std::vector<Index> keys = rng.permutation(kKeys), order = rng.permutation(kPairs);
    std::int32_t *tokens = b.inputs.ptr<std::int32_t>() + row * kLength,
                 *targets = b.targets.ptr<std::int32_t>() + row * kLength + 2 * kPairs;
    for (Index i = 0; i < kPairs; ++i) {
      tokens[2 * i] = id(keys[static_cast<std::size_t>(i)]);
      tokens[2 * i + 1] = id(kKeys + rng.integer(kValues));
    }
    for (Index i = 0; i < kPairs; ++i) {
      const Index pair = order[static_cast<std::size_t>(i)];
      tokens[2 * kPairs + i] = tokens[2 * pair];
      targets[i] = tokens[2 * pair + 1];
    }
  }
  return b;
}

Batch SwapBatches::batch(std::uint64_t seed, std::uint64_t step) const {
  std::vector<std::pair<Index, Index>> swaps;
  for (Index i = 0; i < kPlaces; ++i)
    for (Index j = i + 1; j < kPlaces; ++j) swaps.emplace_back(i, j);
  Batch b = empty_batch(rows, kLength, kLength);
  for (Index row = 0; row < rows; ++row) {
    Rng rng(seed, (held_out ? kTrackingHeldOut : kTracking) + step * static_cast<std::uint64_t>(rows) +
                      static_cast<std::uint64_t>(row));
    std::vector<Index> things(static_cast<std::size_t>(kPlaces));
    std::iota(things.begin(), things.end(), Index{0});
    for (Index t = row * kLength; t < (row + 1) * kLength; ++t) {
      const Index swap = rng.integer(kSwaps);
      const auto [i, j] = swaps[static_cast<std::size_t>(swap)];
      std::swap(things[static_cast<std::size_t>(i)], things[static_cast<std::size_t>(j)]);
      b.inputs.ptr<std::int32_t>()[t] = id(swap);
      b.targets.ptr<std::int32_t>()[t] = id(kSwaps + things[0]);
    }
  }
  return b;
}

}  // namespace heed::examples

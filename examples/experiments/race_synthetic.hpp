// Data of two tasks of the race that show the limits of states: associative recall and state tracking.
#pragma once
#include <cstdint>
#include <heed/data/batches.hpp>

namespace heed::examples {

// Multi-query associative recall (Arora et al., "Zoology: measuring and improving recall in efficient language models",
// 2023): pairs of a key and a value, then all keys in another order. The target of a key in the second part is its
// value.
//
//   k1 v1 k2 v2 k3 v3   k2 k3 k1
//                       v2 v3 v1        targets
struct RecallBatches {
  static constexpr Index kPairs = 16, kKeys = 64, kValues = 64;  // pairs per row; ids of keys, then ids of values
  static constexpr Index kLength = 3 * kPairs, kVocabulary = kKeys + kValues;
  Index rows = 32;
  bool held_out = false;

  Batch batch(std::uint64_t seed, std::uint64_t step) const;  // a pure function of its arguments
};

// State tracking: each token swaps the things at two of five places. The target of a position is the thing that is then
// at the first place. (Word problems of permutations: Grazzi et al., "Unlocking state-tracking in linear RNNs through
// negative eigenvalues", 2024.)
struct SwapBatches {
  static constexpr Index kPlaces = 5, kSwaps = kPlaces * (kPlaces - 1) / 2, kLength = 32;
  static constexpr Index kVocabulary = kSwaps + kPlaces;  // ids of swaps, then ids of things
  Index rows = 32;
  bool held_out = false;

  Batch batch(std::uint64_t seed, std::uint64_t step) const;  // a pure function of its arguments
};

}  // namespace heed::examples

// Seeds of stories for the seed of a run: training and held-out stories never share one.
#pragma once
#include <cstdint>

namespace heed::examples {

constexpr std::uint64_t training_stories(std::uint64_t seed) { return 2 * seed; }
constexpr std::uint64_t held_out_stories(std::uint64_t seed) { return 2 * seed + 1; }

}  // namespace heed::examples

// A limit for insertions into hash tables with linear probing.
#pragma once
#include <cstddef>
#include <heed/core/check.hpp>

namespace heed::detail::tokenizer {

// Counts the steps of all insertions into a table. The entries of a hostile file can be chosen so that all begin at one
// place of the table; they would take steps in proportion to the square of their number.
class Probes {
 public:
  // Counts the steps of an insertion into a table of `entries` entries. Throws Error if all took too many.
  void add(std::size_t steps, std::size_t entries) {
    steps_ += steps;
    if (steps_ > kAlways + kPerEntry * entries) [[unlikely]]
      fail("tokenizer: the texts of the file collide in a hash table: ", entries, " entries take more than ", kPerEntry,
           " steps each");
  }

 private:
  static constexpr std::size_t kAlways = std::size_t{1} << 20, kPerEntry = 64;  // chance takes about 2 per entry
  std::size_t steps_ = 0;
};

}  // namespace heed::detail::tokenizer

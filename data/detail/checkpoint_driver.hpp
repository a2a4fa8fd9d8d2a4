// A file in memory that HDF5 writes, of which only the bytes that were written take memory. Only checkpoint_*.cpp
// include this.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <heed/data/detail/checkpoint_handle.hpp>
#include <map>

namespace heed::detail {

// Pages of what was written; the rest reads as zeros. HDF5's own file in memory (its core driver) fills all of it with
// zeros, and then holds a copy of each value.
class SparseFile {
 public:
  void write(std::uint64_t at, const unsigned char* bytes, std::size_t count);
  void read(std::uint64_t at, unsigned char* bytes, std::size_t count) const;

 private:
  static constexpr std::size_t kPage = 4096;
  std::map<std::uint64_t, std::array<unsigned char, kPage>> pages_;  // by their numbers

  // Calls use(page, begin within it, begin within the bytes, count) for the parts that each page has of a range.
  template <class Use>
  static void each_page(std::uint64_t at, std::size_t count, const Use& use);
};

// HDF5's properties for access to `content`, which must live as long as a file that is made with them.
Handle access_to(SparseFile& content);

}  // namespace heed::detail

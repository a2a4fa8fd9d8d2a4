// A sparse file in memory that HDF5 writes; only written bytes take memory. Included only by checkpoint_*.cpp.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <heed/data/detail/checkpoint_handle.hpp>
#include <map>

namespace heed::detail {

// Stores the written pages; other bytes read as zeros. HDF5's own file in memory (its core driver) would fill the whole
// file with zeros and hold a copy of each value.
class SparseFile {
 public:
  void write(std::uint64_t at, const unsigned char* bytes, std::size_t count);
  void read(std::uint64_t at, unsigned char* bytes, std::size_t count) const;

 private:
  static constexpr std::size_t kPage = 4096;
  std::map<std::uint64_t, std::array<unsigned char, kPage>> pages_;  // by page number

  // Calls use(page, offset in the page, offset in the bytes, count) for each page that overlaps a range.
  template <class Use>
  static void each_page(std::uint64_t at, std::size_t count, const Use& use);
};

// HDF5's access properties for `content`, which must outlive every file made with them.
Handle access_to(SparseFile& content);

}  // namespace heed::detail

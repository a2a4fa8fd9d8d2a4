// The HDF5 inside of a checkpoint file: from and to memory.
#pragma once
#include <cstddef>
#include <heed/data/checkpoint.hpp>
#include <memory>
#include <span>
#include <string>

namespace heed::detail {

inline constexpr std::size_t kUserBlock = 512;  // bytes before the HDF5 that belong to us

// A checkpoint as the bytes of an HDF5 file that begins with an empty user block. The bytes belong to HDF5's memory
// driver: they are not copied.
class Hdf5Image {
 public:
  explicit Hdf5Image(const Checkpoint& checkpoint);
  ~Hdf5Image();
  Hdf5Image(const Hdf5Image&) = delete;
  Hdf5Image& operator=(const Hdf5Image&) = delete;

  unsigned char* bytes() const { return bytes_; }
  std::size_t size() const { return size_; }

 private:
  struct File;
  std::unique_ptr<File> file_;
  unsigned char* bytes_ = nullptr;
  std::size_t size_ = 0;
};

// The inverse. Errors name `source`.
Checkpoint parse_hdf5(std::span<const unsigned char> image, const std::string& source);

std::size_t open_hdf5_handles();  // of the process; the tests see whether all were closed

}  // namespace heed::detail

// The HDF5 part of a checkpoint file: conversion to and from memory.
#pragma once
#include <cstddef>
#include <functional>
#include <heed/data/checkpoint.hpp>
#include <memory>
#include <string>
#include <vector>

namespace heed::detail {

inline constexpr std::size_t kUserBlock = 512;  // bytes before the HDF5 part, for heed's header

// A checkpoint as the bytes of an HDF5 file that begins with an empty user block: a list of pieces in file order.
// Values of large tensors are not copied, so they must not change during the lifetime of this object.
class Hdf5Image {
 public:
  explicit Hdf5Image(const Checkpoint& checkpoint);

  std::size_t size() const { return size_; }
  unsigned char* user_block() { return reinterpret_cast<unsigned char*>(pieces_.front().bytes.data()); }
  // Calls use(bytes, count) for each piece. The first piece contains the user block.
  template <class Use>
  void for_each(const Use& use) const {
    for (const Piece& piece : pieces_) {
      if (!piece.values) {
        use(reinterpret_cast<const unsigned char*>(piece.bytes.data()), piece.bytes.size());
        continue;
      }
      const Tensor values = piece.values().dense();  // copies one tensor at a time if it has gaps
      use(static_cast<const unsigned char*>(values.raw()),
          static_cast<std::size_t>(values.numel()) * size_of(values.dtype()));
    }
  }

 private:
  struct Piece {
    std::string bytes;
    std::function<Tensor()> values;  // empty: the piece is `bytes`
  };
  std::vector<Piece> pieces_;
  std::size_t size_ = 0;
};

// The inverse of Hdf5Image. Large tensors look into the image, which exists as long as any of them. Errors name
// `source`.
Checkpoint parse_hdf5(const std::shared_ptr<unsigned char>& image, std::size_t size, const std::string& source);

}  // namespace heed::detail

// A reader for the HDF5 structures that a checkpoint uses, and for no others.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace heed::detail {

// The type of the values of a data set.
struct StoredType {
  enum class Kind { integer, real, boolean, fixed_text, text, other };

  Kind kind = Kind::other;
  std::uint32_t size = 0;  // bytes per value
  bool is_signed = false;
  bool big_endian = false;
  const char* other = "of an unsupported type";  // description of a type of kind other

  std::string name() const;  // for messages: int64
};

// A data set, completely inside the image.
struct StoredData {
  std::string path;  // model/x
  StoredType type;
  std::vector<std::uint64_t> sizes;            // empty: a single value; the product fits into an int64
  std::span<const unsigned char> values = {};  // product of the sizes times type.size bytes
  std::string_view text = {};                  // if the value is a single string
  std::string_view dtype = {};                 // the attribute "dtype", if it is a single string
};

// Reads the HDF5 that begins at image[user_block] and calls `use` for each data set, in the order of names within a
// group. Everything is checked before use. Each byte belongs to at most one structure, so that no structure contains
// itself, occurs twice or reaches outside of the file. The values of all data sets together are no larger than the
// image. Needs little memory besides the image.
//
// Throws Error, one sentence that begins with `op` and names `source`, if a structure is damaged or not supported:
// links to other files, second links to an object, values in other files, values in chunks.
void read_structure(const char* op, const std::string& source, std::span<const unsigned char> image,
                    std::size_t user_block, const std::function<void(const StoredData&)>& use);

}  // namespace heed::detail

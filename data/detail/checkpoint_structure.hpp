// What lies where in the HDF5 of a checkpoint: a reader of the few structures that a checkpoint needs, and of no
// others.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace heed::detail {

// The type of a data set's values.
struct StoredType {
  enum class Kind { integer, real, boolean, fixed_text, text, other };

  Kind kind = Kind::other;
  std::uint32_t size = 0;  // bytes of a value
  bool is_signed = false;
  bool big_endian = false;
  const char* other = "of another type";  // what that is

  std::string name() const;  // for messages: int64
};

// A data set: all of it lies in the image.
struct StoredData {
  std::string path;  // model/x
  StoredType type;
  std::vector<std::uint64_t> sizes;            // none: one value. Their product fits into an int64
  std::span<const unsigned char> values = {};  // product of the sizes times type.size bytes
  std::string_view text = {};                  // where there is one value and it is a string
  std::string_view dtype = {};                 // the attribute of this name, where it is one string
};

// Walks through the HDF5 that begins at image[user_block] and hands over each data set, those of a group in the order
// of their names. Everything is checked before it is used: each byte belongs to one structure at most, so that nothing
// holds itself, stands there twice or reaches out of the file, and the values of all data sets together are no larger
// than the image. Takes little memory beside the image. Error, one sentence that begins with `op` and names `source`,
// for a structure that is damaged and for one that is not admitted: links to elsewhere, second links to an object,
// values in other files, values in chunks.
void read_structure(const char* op, const std::string& source, std::span<const unsigned char> image,
                    std::size_t user_block, const std::function<void(const StoredData&)>& use);

}  // namespace heed::detail

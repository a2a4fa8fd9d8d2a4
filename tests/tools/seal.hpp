// Writes the user block of a checkpoint, independently of the library.
#pragma once
#include <xxhash.h>

#include <cstdint>
#include <cstring>
#include <string>

namespace heed::test {

// The file with a valid user block in its first 512 bytes (docs/checkpoint_format.md).
inline std::string sealed(std::string file, std::uint32_t version = 1, std::uint32_t user_block = 512) {
  const std::uint64_t size = file.size(), none = 0;
  std::memcpy(&file[0], "\x89heed\r\n\x1a", 8);
  std::memcpy(&file[8], &version, 4);
  std::memcpy(&file[12], &user_block, 4);
  std::memcpy(&file[16], &size, 8);
  std::memcpy(&file[24], &none, 8);
  const std::uint64_t hash = XXH3_64bits(file.data(), file.size());
  std::memcpy(&file[24], &hash, 8);
  return file;
}

}  // namespace heed::test

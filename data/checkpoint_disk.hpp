// Files that are replaced whole or not at all.
#pragma once
#include <cstddef>
#include <filesystem>
#include <memory>

namespace heed::detail {

// Makes `path` hold these bytes: writes path.tmp in the same folder, syncs it, renames it, syncs the folder. On failure
// removes path.tmp, leaves `path` as it was and throws an Error that begins with `op`. A path.tmp left by a killed
// program is overwritten; one that another program is writing is an Error. Where `path` is a symbolic link, its target
// is replaced.
void replace_file(const char* op, const std::filesystem::path& path, const unsigned char* bytes, std::size_t size);

// An open file that is read; errors begin with `op` and name the file.
class InputFile {
 public:
  InputFile(const char* op, std::filesystem::path path);  // Error unless it is a regular file that can be read
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  std::size_t size() const { return size_; }
  void read(unsigned char* to, std::size_t count);  // the next bytes; Error when there are fewer

 private:
  const char* op_;
  std::filesystem::path path_;
  int fd_ = -1;
  std::size_t size_ = 0;
};

}  // namespace heed::detail

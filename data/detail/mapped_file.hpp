// A file mapped into memory for reading. Used by token files and by the readers of io/.
#pragma once
#include <cstddef>
#include <filesystem>
#include <span>

namespace heed::detail {

// Pages are read from the file when they are used, and the system may drop them again, so a mapped file takes no memory
// that other work needs. If another program truncates the file, a use of the lost part ends this program (SIGBUS):
// writers must replace files, as NewFile does.
class MappedFile {
 public:
  // Throws Error, which begins with `op` and names the file, unless `path` is a readable regular file. The file may be
  // empty.
  MappedFile(const char* op, const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  // The content. The address is that of a page; it stays the same when the object is moved.
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  // Releases the memory of the pages that `part` of bytes() touches. A later use reads them from the file again.
  void forget(std::span<const std::byte> part) const;

 private:
  std::byte* data_ = nullptr;  // null if the file is empty
  std::size_t size_ = 0;
};

}  // namespace heed::detail

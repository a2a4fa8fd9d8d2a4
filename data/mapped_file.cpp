// Maps files.
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <heed/core/check.hpp>
#include <heed/data/detail/disk.hpp>
#include <heed/data/detail/mapped_file.hpp>
#include <utility>

namespace heed::detail {

MappedFile::MappedFile(const char* op, const std::filesystem::path& path) {
  const InputFile file(op, path);
  if (file.size() == 0) return;  // an empty map is an error
  void* map = ::mmap(nullptr, file.size(), PROT_READ, MAP_SHARED, file.descriptor(), 0);
  require(map != MAP_FAILED, op, ": ", path.native(), " cannot be mapped: ", reason(errno));
  data_ = static_cast<std::byte*>(map);
  size_ = file.size();
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void MappedFile::forget(std::span<const std::byte> part) const {
  if (part.empty()) return;
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const auto before = static_cast<std::size_t>(part.data() - data_) % page;
  ::madvise(data_ + (part.data() - data_) - before, part.size() + before, MADV_DONTNEED);
}

}  // namespace heed::detail

#include "tests/data/temporary_folder.hpp"

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace heed::test {

TemporaryFolder::TemporaryFolder() {
  static std::atomic<int> count{0};
  path = std::filesystem::temp_directory_path() /
         ("heed_test_" + std::to_string(::getpid()) + "_" + std::to_string(count++));
  std::filesystem::create_directories(path);
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

std::filesystem::path TemporaryFolder::write(const std::string& name, const std::string& bytes) const {
  const std::filesystem::path file = path / name;
  std::filesystem::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary) << bytes;
  return file;
}

Unprivileged::Unprivileged() {
  if (root && ::seteuid(65534) != 0) throw std::runtime_error("root cannot give up its rights");
}

Unprivileged::~Unprivileged() {
  if (root && ::seteuid(0) != 0) std::abort();
}

std::string bytes_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::size_t files_in(const std::filesystem::path& folder) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

}  // namespace heed::test

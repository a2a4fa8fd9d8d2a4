// Folders for the files of one test, and the contents of folders.
#include "tests/data/temporary_folder.hpp"

#include <sys/stat.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
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
  std::ostringstream bytes;
  bytes << in.rdbuf();
  return bytes.str();
}

std::size_t files_in(const std::filesystem::path& folder) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

std::map<std::string, std::string> state_of(const std::filesystem::path& folder) {
  std::map<std::string, std::string> state;
  const auto add = [&state](const std::filesystem::path& path) {
    struct stat s = {};
    ::lstat(path.c_str(), &s);
    state[path] = std::to_string(s.st_mode) + " " + std::to_string(s.st_mtim.tv_sec) + "." +
                  std::to_string(s.st_mtim.tv_nsec) + (S_ISREG(s.st_mode) ? bytes_of(path) : "");
  };
  add(folder);
  const auto readable = std::filesystem::directory_options::skip_permission_denied;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder, readable)) add(entry.path());
  return state;
}

}  // namespace heed::test

// Folders for the files of one test, and the contents of folders.
#pragma once
#include <unistd.h>

#include <filesystem>
#include <map>
#include <string>

namespace heed::test {

// A new empty folder, removed with its contents by the destructor.
struct TemporaryFolder {
  std::filesystem::path path;

  TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder();

  std::filesystem::path write(const std::string& name, const std::string& bytes) const;
};

// Drops root's privileges within the scope, so that tests can make files inaccessible.
struct Unprivileged {
  bool root = ::geteuid() == 0;
  Unprivileged();
  ~Unprivileged();
  Unprivileged(const Unprivileged&) = delete;
  Unprivileged& operator=(const Unprivileged&) = delete;
};

std::string bytes_of(const std::filesystem::path& file);
std::size_t files_in(const std::filesystem::path& folder);  // entries of any kind
// For each path in the folder and for the folder: kind, permissions, time and bytes.
std::map<std::string, std::string> state_of(const std::filesystem::path& folder);

}  // namespace heed::test

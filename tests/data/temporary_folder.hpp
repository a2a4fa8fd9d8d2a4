// A folder for the files of one test, removed at its end.
#pragma once
#include <unistd.h>

#include <filesystem>
#include <map>
#include <string>

namespace heed::test {

struct TemporaryFolder {
  std::filesystem::path path;

  TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder();

  std::filesystem::path write(const std::string& name, const std::string& bytes) const;
};

// Inside the scope root has no more rights than others, so that files may be closed to tests, too.
struct Unprivileged {
  bool root = ::geteuid() == 0;
  Unprivileged();
  ~Unprivileged();
  Unprivileged(const Unprivileged&) = delete;
  Unprivileged& operator=(const Unprivileged&) = delete;
};

std::string bytes_of(const std::filesystem::path& file);
std::size_t files_in(const std::filesystem::path& folder);  // entries, whatever they are
// Kind, rights, time and bytes of the folder and of all below it, by their paths.
std::map<std::string, std::string> state_of(const std::filesystem::path& folder);

}  // namespace heed::test

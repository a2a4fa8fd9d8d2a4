// Folders that are replaced whole or not at all. Internal.
#pragma once
#include <filesystem>
#include <functional>
#include <heed/data/detail/disk.hpp>
#include <string>

namespace heed::detail {

// A folder of files that replaces `path` whole, or not at all. path.tmp beside it gets the files, each written by
// NewFile or a function that uses it. finish() exchanges the two folders by one rename, and removes the old one. Until
// then, and after any error, `path` is unchanged. Without finish(), path.tmp is removed. A path.tmp of a killed program
// is emptied and used. If `path` is a symbolic link, its target is replaced.
//
// Where the file system cannot exchange folders, the old one is renamed to path.old first. Killed between these two
// renames, a program leaves path.old and path.tmp, both complete.
//
// Throws Error, which begins with `op`, if another program is writing path.tmp, if `path` is no folder, is the current
// folder, or contains a file that `belongs` does not accept: such a file would be lost.
class NewFolder {
 public:
  using Belongs = std::function<bool(const std::string& name)>;
  NewFolder(const char* op, const std::filesystem::path& path, Belongs belongs);
  ~NewFolder();
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  std::filesystem::path file(const std::string& name) const { return temporary_ / name; }  // to be written
  void finish();  // throws Error if the folders cannot be exchanged; no call may follow

 private:
  void lock();
  void check_old() const;
  void empty(const std::filesystem::path& folder) const;
  int exchange() const;         // 0 or errno
  void remove_remains() const;  // path.tmp

  const char* op_;
  Belongs belongs_;
  std::filesystem::path path_, temporary_;
  Descriptor made_;  // path.tmp, locked
  bool placed_ = false;
};

}  // namespace heed::detail

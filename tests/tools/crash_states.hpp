// The states of a program's files that a power cut may leave. SIGKILL does not lose data that the system has in memory,
// so only this shows a missing fsync. The calls of a run are recorded (Failing::record) and repeated on a model of a
// disk.
#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace heed::test {

// A call that changed or synced a file or a folder.
struct DiskCall {
  enum class Kind { create, write, truncate, sync, rename, unlink } kind;
  std::string path, from;  // relative to the recorded folder; `from`: old name of a rename
  std::size_t at = 0;      // start of a write; size after a truncate
  std::string bytes;       // bytes of a write
};

// The calls on files in `folder` that a program recorded in `record`.
std::vector<DiskCall> recorded_calls(const std::filesystem::path& record, const std::filesystem::path& folder);

// Contents of files by path. They belong to the disk that returned them, which has equal contents only once.
using Files = std::map<std::string, const std::string*>;

// A disk whose file system guarantees no more than POSIX:
// - A file's content and size are safe once the file was synced. Before that, any of its writes may be there, missing,
//   in part, or zeros, with or without the new size.
// - A file's name (created, renamed, removed) is safe once its folder was synced. Before that, any of these changes may
//   be there or not, in any order. A rename is there as a whole or not.
class CrashDisk {
 public:
  explicit CrashDisk(const std::filesystem::path& folder);  // all files of the folder are synced

  void apply(const DiskCall& call);
  Files now() const;               // the files as programs see them
  std::set<Files> states() const;  // all states that a power cut may leave now, including now()

 private:
  struct File {
    std::string sure, seen;         // certain to be on the disk; as programs see it
    std::vector<DiskCall> pending;  // the calls that lead from `sure` to `seen`
  };
  struct Change {
    DiskCall call;  // create, rename or unlink
    int file;       // the file whose name changes
  };
  using Names = std::map<std::string, int>;  // indices of files_

  mutable std::set<std::string> contents_;
  std::vector<File> files_;
  Names sure_, seen_;
  std::vector<Change> pending_;

  const std::string* keep(std::string content) const { return &*contents_.insert(std::move(content)).first; }
  std::set<const std::string*> left_of(const File& file) const;
  static void change(Names& names, const Change& change);
};

void write_files(const Files& files, const std::filesystem::path& folder);  // removes other files

}  // namespace heed::test

// What a power cut may leave of a program's files. SIGKILL keeps what the system holds in memory, so only this shows a
// missing fsync: the calls of a run are recorded (Failing::record) and done again on a model of a disk.
#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace heed::test {

// A call that changed a file or a folder, or synced it.
struct DiskCall {
  enum class Kind { create, write, truncate, sync, rename, unlink } kind;
  std::string path, from;  // below the folder of the record; from: of a rename
  std::size_t at = 0;      // where a write begins; the size after a truncate
  std::string bytes;       // of a write
};

// The calls below `folder` that a program recorded in `record`.
std::vector<DiskCall> recorded_calls(const std::filesystem::path& record, const std::filesystem::path& folder);

// Files by their path; the contents live as long as the disk they are of, which has each only once.
using Files = std::map<std::string, const std::string*>;

// A disk whose file system promises no more than POSIX does:
//   - what is written to a file, and its size, is sure once the file was synced. Before, any of its writes may be there
//     or not, in part, or as zeros, with the size that it gave or without;
//   - a file's name (made, renamed, removed) is sure once its folder was synced. Before, any of these may be there or
//     not, in any order; a rename is there whole or not at all.
class CrashDisk {
 public:
  explicit CrashDisk(const std::filesystem::path& folder);  // whose files are all sure

  void apply(const DiskCall& call);
  Files now() const;               // what programs see
  std::set<Files> states() const;  // what a power cut at this moment may leave, now() among them

 private:
  struct File {
    std::string sure, seen;         // on the disk for certain; as programs see it
    std::vector<DiskCall> pending;  // what leads from the one to the other
  };
  struct Change {
    DiskCall call;  // create, rename or unlink
    int file;       // whose name it is about
  };
  using Names = std::map<std::string, int>;  // of files_

  mutable std::set<std::string> contents_;
  std::vector<File> files_;
  Names sure_, seen_;
  std::vector<Change> pending_;

  const std::string* keep(std::string content) const { return &*contents_.insert(std::move(content)).first; }
  std::set<const std::string*> left_of(const File& file) const;
  static void change(Names& names, const Change& change);
};

void write_files(const Files& files, const std::filesystem::path& folder);  // and no others in it

}  // namespace heed::test

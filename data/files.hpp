// The files of a run or a program, their roles, and a check of all of them before any is written.
//
// Example:
//
//   std::ofstream("lines.txt") << "a text\n";
//   const FileUse text{"--data", "lines.txt", FileRole::input};
//   check_files("train", {text, {"--checkpoint", "lines.h5", FileRole::checkpoint}});
//   try {
//     check_files("train", {text, {"--log", "./lines.txt", FileRole::log}});
//   } catch (const FileError& error) {
//     std::cerr << error.what() << '\n';  // train: --log is ./lines.txt and --data lines.txt, the same file; ...
//   }
#pragma once
#include <filesystem>
#include <heed/core/check.hpp>
#include <string>
#include <vector>

namespace heed {

// The use of a file.
enum class FileRole {
  input,       // read only; a folder means the files in it (text_files)
  output,      // replaced whole: FILE.tmp is written, then renamed to FILE
  checkpoint,  // an output that a run locks by FILE.lock and may also read
  log,         // written line by line; may also be a pipe, a character device, or the target of standard output
};

// A file and its role.
struct FileUse {
  std::string name = {};            // a flag or an option of run(), for messages
  std::filesystem::path path = {};  // empty: no file
  FileRole role = FileRole::input;  // how the program uses the file
};

// Thrown if a named file cannot be used in its role.
class FileError : public Error {
 public:
  using Error::Error;
};

// Throws FileError, which begins with `op` unless `op` is empty, if
// - a file to be written cannot be written: a folder, a device, a missing or read-only folder, too long a name, ...
// - a file to be written, its FILE.tmp or its FILE.lock is the same file as another file of the list, by any name, or
//   as the target of standard output or standard error (allowed for a log). Two inputs may be the same file.
//
// Opens no file for writing and creates or changes nothing. Does not check whether inputs exist.
void check_files(const std::string& op, const std::vector<FileUse>& files);

// Throws Error, which begins with `op`, unless a file can be written to `path` now. Call it before a long computation.
// Throws FileError if check_files() would. Leaves no file there.
void check_place(const char* op, const std::filesystem::path& path);

}  // namespace heed

// The files of a run or a program, what each is used for, and a check of all of them before any is written.
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

// What a file is used for.
enum class FileRole {
  input,       // read only; a folder stands for the files in it (text_files)
  output,      // replaced whole: FILE.tmp is written, then renamed to FILE
  checkpoint,  // an output that a run locks by FILE.lock, and may also read
  log,         // written line by line; may also be a pipe, a character device, or where standard output goes
};

struct FileUse {
  std::string name = {};            // in messages: a flag, or an option of run()
  std::filesystem::path path = {};  // empty: no file
  FileRole role = FileRole::input;
};

// A file that was named cannot be used as it was meant to be.
class FileError : public Error {
 public:
  using Error::Error;
};

// Throws FileError, which begins with `op` unless that is empty, where
// - a file to be written cannot be: a folder, a device, a missing or read-only folder, too long a name, ...
// - a file to be written, its FILE.tmp or its FILE.lock, is another file of the list, by whatever name, or is where
//   standard output or standard error goes (but for a log). Two inputs may be the same file.
// Opens nothing for writing, and makes and changes nothing. Whether inputs exist is not checked.
void check_files(const std::string& op, const std::vector<FileUse>& files);

// Throws Error, which begins with `op`, unless a file can be written to `path` now: before long work for that file.
// FileError for what check_files() refuses. Leaves nothing there.
void check_place(const char* op, const std::filesystem::path& path);

// Whether two paths name one file, existing or not, by whatever spelling, symbolic links, hard links or mounts.
bool same_file(const std::filesystem::path& a, const std::filesystem::path& b);

}  // namespace heed

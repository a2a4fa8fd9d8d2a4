// What every program does around its work: flags, errors, exit codes.
#pragma once
#include <filesystem>
#include <heed/data/checkpoint.hpp>
#include <memory>

#include "examples/support/command_line.hpp"

namespace heed::examples {

// Parses the flags into what `line` was told, then runs `work`. Exit codes: 0 done, 1 an Error, or a standard output
// that cannot be written (one line on stderr), 2 wrong flags (one line that says what is right).
int run_program(CommandLine& line, int argc, char** argv, const std::function<int()>& work);

// The files that the flags of a program name, each with its flag.
struct FlagFile {
  std::string flag;
  std::filesystem::path file;
};
struct FlagFiles {
  std::vector<FlagFile> read = {};      // folders stand for the files in them
  std::vector<FlagFile> replaced = {};  // checkpoints, pictures: whole files
  std::vector<FlagFile> logs = {};      // written line by line
};

// Before anything is opened for writing: throws UsageError where a file that is written has another flag too, by
// whatever name, or is what another one is kept in until it is whole; Error where a log cannot be written. Empty names
// are left out.
void check_files(const FlagFiles& files);

// Hands what was printed to the system; throws Error where standard output takes no more.
void flush_output();
// The same at once for a piece of a text: TextOptions::on_text.
void print_piece(Index text, const std::string& piece);

// The same for a tutorial, which has no flags but --help and maybe one for a file: --plot, which is checked, or
// another.
struct FileFlag {
  std::string flag, help;
};
int run_tutorial(const std::string& about, int argc, char** argv, const FileFlag& flag,
                 const std::function<int(const std::string& file)>& lesson);
int run_tutorial(const std::string& about, int argc, char** argv, const std::function<int()>& lesson);

}  // namespace heed::examples

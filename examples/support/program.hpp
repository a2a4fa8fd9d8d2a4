// The frame of every program: flags, errors, exit codes.
#pragma once
#include <filesystem>
#include <heed/data/checkpoint.hpp>
#include <memory>

#include "examples/support/command_line.hpp"

namespace heed::examples {

// The number of processes of this program that mpirun started; 0 without mpirun.
int ranks_by_mpirun();

// Parses the flags of `line`, checks the files that they name (check_files()), then calls `work`. Returns the exit
// code: that of `work`, or 1 after an exception or if standard output cannot be written, or 2 for wrong flags
// (UsageError) and unusable files (FileError). Prints one line on stderr for each error. An exception outside
// run_program() or on a thread also prints one line and exits with 1.
int run_program(CommandLine& line, int argc, char** argv, const std::function<int()>& work);

// Checks the files of the flags together with `more`: files that a checkpoint names, or whose names are made from a
// flag. Call it before anything is written. Throws FileError if a file is unusable or has two uses.
void check_files(const CommandLine& line, const std::vector<FileUse>& more);

// Flushes standard output. Throws Error if it cannot be written.
void flush_output();
// Prints any bytes, including zeros. On a terminal, control characters other than line feeds and tabs are escapes.
void print_text(const std::string& text);
// Prints a piece of a text and flushes: TextOptions::on_text.
void print_piece(Index text, const std::string& piece);

// run_program() for a tutorial. Its flags are --help and at most one for an output file. A file of --plot is checked
// before the lesson.
struct FileFlag {
  std::string flag, help;
};
int run_tutorial(const std::string& about, int argc, char** argv, const FileFlag& flag,
                 const std::function<int(const std::string& file)>& lesson);
int run_tutorial(const std::string& about, int argc, char** argv, const std::function<int()>& lesson);

}  // namespace heed::examples

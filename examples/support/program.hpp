// What every program does around its work: flags, errors, exit codes.
#pragma once
#include <filesystem>
#include <heed/data/checkpoint.hpp>
#include <memory>

#include "examples/support/command_line.hpp"

namespace heed::examples {

// How many processes of the program mpirun started; 0: it did not.
int ranks_by_mpirun();

// Parses the flags into what `line` was told, checks the files that they name (check_files()), then runs `work`. Exit
// codes: 0 done, 1 an Error, or a standard output that cannot be written (one line on stderr), 2 wrong flags (one line
// that says what is right). A file that cannot be used as a flag asks, FileError, is a wrong flag. An exception outside
// run_program(), or of a thread, is one line on stderr and exit code 1, too.
int run_program(CommandLine& line, int argc, char** argv, const std::function<int()>& work);

// The check of files again, with files that no flag names: those that a checkpoint names, or that are made of a flag's
// name. Call it before anything is written.
void check_files(const CommandLine& line, const std::vector<FileUse>& more);

// Hands what was printed to the system; throws Error where standard output takes no more.
void flush_output();
// Prints any bytes, zeros too.
void print_text(const std::string& text);
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

// What every program does around its work: flags, errors, exit codes.
#pragma once
#include "examples/support/command_line.hpp"

namespace heed::examples {

// Parses the flags into what `line` was told, then runs `work`. Exit codes: 0 done, 1 an Error (one line on stderr), 2
// wrong flags (one line that says what is right).
int run_program(CommandLine& line, int argc, char** argv, const std::function<int()>& work);

// A flag that takes a file name.
struct FileFlag {
  std::string flag, help;
  std::string* file;
};

// The same for a tutorial, which has no flags but --help and `files`.
int run_tutorial(const std::string& about, int argc, char** argv, const std::vector<FileFlag>& files,
                 const std::function<int()>& lesson);
inline int run_tutorial(const std::string& about, int argc, char** argv, const std::function<int()>& lesson) {
  return run_tutorial(about, argc, argv, {}, lesson);
}

}  // namespace heed::examples

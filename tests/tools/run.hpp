// Starts programs from tests, also with failing files.
#pragma once
#include <filesystem>
#include <string>

namespace heed::test {

// The end and the output of a program.
struct Ran {
  int exit_code = -1;  // -1 if a signal ended it
  int signal = 0;
  std::string output;  // standard output and error
};

std::string quoted(const std::string& text);  // quoted for a shell

// Runs a shell command. With `exec PROGRAM ...`, `signal` is that of the program.
Ran run(const std::string& command);

// How files of a program fail: see tests/tools/fail_io.c.
struct Failing {
  std::filesystem::path prefix;       // only files whose path begins with this
  std::string mode = {};              // kill, tear, enospc, eio, eacces, erofs; empty: nothing fails
  int at = 0;                         // number of the call, from 1
  int chunk = 0;                      // bytes per write; 0: no limit
  std::filesystem::path log = {};     // for a line per call
  std::filesystem::path record = {};  // for calls with their bytes: tests/tools/crash_states.hpp
  std::string hdf5 = {};              // NAME:n, a call of tests/tools/fail_hdf5.c; empty: none
};

// Runs a program, with arguments quoted for a shell, with failing files.
Ran run(const std::string& program, const Failing& failing);

}  // namespace heed::test

// Programs started by tests, whole or with failing files.
#pragma once
#include <filesystem>
#include <string>

namespace heed::test {

struct Ran {
  int exit_code = -1;  // -1 if a signal ended it
  int signal = 0;
  std::string output;  // standard output and error
};

std::string quoted(const std::string& text);  // for a shell

// Runs a shell command; with `exec PROGRAM ...` the program's own signal is told.
Ran run(const std::string& command);

// How the files below a folder fail: see tests/tools/fail_io.c.
struct Failing {
  std::filesystem::path prefix;
  std::string mode = {};  // kill, tear, enospc, eio, eacces, erofs; empty: nothing fails
  int at = 0;             // the call, from 1
  int chunk = 0;          // bytes a write; 0: no limit
  std::filesystem::path log = {};
  std::filesystem::path record = {};  // of its calls with their bytes: tests/tools/crash_states.hpp
  std::string hdf5 = {};  // NAME:n, a call of tests/tools/fail_hdf5.c; empty: none
};

// Runs a program (its arguments quoted) with failing files.
Ran run(const std::string& program, const Failing& failing);

}  // namespace heed::test

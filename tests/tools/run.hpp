// Programs started by tests, whole or with failing files.
#pragma once
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace heed::test {

struct Ran {
  int exit_code = -1;  // -1 if a signal ended it
  int signal = 0;
  std::string output;  // standard output and error
};

inline std::string quoted(const std::string& text) {
  std::string q = "'";
  for (char c : text) q += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return q + "'";
}

// Runs a shell command; with `exec PROGRAM ...` the program's own signal is told.
inline Ran run(const std::string& command) {
  Ran result;
  std::FILE* pipe = ::popen(("exec 2>&1; " + command).c_str(), "r");
  if (!pipe) return result;
  char buffer[4096];
  for (std::size_t n; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) result.output.append(buffer, n);
  const int status = ::pclose(pipe);
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  return result;
}

// How the files below a folder fail: see tests/tools/fail_io.c.
struct Failing {
  std::filesystem::path prefix;
  std::string mode;  // kill, tear, enospc, eio, eacces, erofs; empty: nothing fails
  int at = 0;        // the call, from 1
  int chunk = 0;     // bytes a write; 0: no limit
  std::filesystem::path log = {};
};

// Runs a program (its arguments quoted) with failing files.
inline Ran run(const std::string& program, const Failing& failing) {
  const char* asan = std::getenv("ASAN_OPTIONS");
  const char* preloaded = std::getenv("LD_PRELOAD");
  std::string command = "exec env LD_PRELOAD=" +
                        quoted(preloaded ? std::string(HEED_FAIL_IO) + ":" + preloaded : HEED_FAIL_IO) +
                        " ASAN_OPTIONS=" + quoted(std::string(asan ? asan : "") + ":verify_asan_link_order=0") +
                        " HEED_FAIL_PREFIX=" + quoted(failing.prefix.string());
  if (failing.at > 0) command += " HEED_FAIL_AT=" + std::to_string(failing.at) + " HEED_FAIL_MODE=" + failing.mode;
  if (failing.chunk > 0) command += " HEED_FAIL_CHUNK=" + std::to_string(failing.chunk);
  if (!failing.log.empty()) command += " HEED_FAIL_LOG=" + quoted(failing.log.string());
  return run(command + " " + program);
}

}  // namespace heed::test

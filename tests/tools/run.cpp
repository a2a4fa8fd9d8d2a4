// Starts programs in a shell and reads their output.
#include "tests/tools/paths.hpp"
#include "tests/tools/run.hpp"

#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>

namespace heed::test {

std::string quoted(const std::string& text) {
  std::string q = "'";
  for (char c : text) q += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return q + "'";
}

Ran run(const std::string& command) {
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

Ran run(const std::string& program, const Failing& failing) {
  const char* asan = std::getenv("ASAN_OPTIONS");
  const char* preloaded = std::getenv("LD_PRELOAD");
  std::string command =
      "exec env LD_PRELOAD=" + quoted(fail_io_library() + (preloaded ? std::string(":") + preloaded : "")) +
      " ASAN_OPTIONS=" + quoted(std::string(asan ? asan : "") + ":verify_asan_link_order=0") +
      " HEED_FAIL_PREFIX=" + quoted(failing.prefix.string());
  if (failing.at > 0) command += " HEED_FAIL_AT=" + std::to_string(failing.at) + " HEED_FAIL_MODE=" + failing.mode;
  if (failing.chunk > 0) command += " HEED_FAIL_CHUNK=" + std::to_string(failing.chunk);
  if (!failing.log.empty()) command += " HEED_FAIL_LOG=" + quoted(failing.log.string());
  if (!failing.record.empty()) command += " HEED_FAIL_RECORD=" + quoted(failing.record.string());
  if (!failing.hdf5.empty()) command += " HEED_FAIL_HDF5=" + failing.hdf5;
  return run(command + " " + program);
}

}  // namespace heed::test

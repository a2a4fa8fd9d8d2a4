// Python for tests that need it.
#pragma once
#include <doctest/doctest.h>

#include <cstdlib>
#include <string>

#include "tests/tools/run.hpp"

namespace heed::test {

// A Python interpreter that has the modules, quoted for a shell. If there is none, prints a message and returns an
// empty text. HEED_PYTHON names another interpreter.
inline std::string python_with(const std::string& modules) {
  const char* chosen = std::getenv("HEED_PYTHON");
  for (const std::string& python : {std::string(chosen ? chosen : "/usr/bin/python3"), std::string("python3")}) {
    if (run(quoted(python) + " -c " + quoted("import " + modules)).exit_code == 0) return quoted(python);
  }
  MESSAGE("skipped: no python3 with ", modules);
  return {};
}

}  // namespace heed::test

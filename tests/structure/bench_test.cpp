// Runs the tests of the benchmark driver, a Python program: tests/benchmarks/driver_test.py.
#include "tests/tools/paths.hpp"
#include "tests/tools/python.hpp"

using namespace heed::test;

TEST_CASE("bench: the driver reads the output of programs, measures them in turn and makes the table") {
  const std::string python = python_with("unittest, dataclasses");
  if (python.empty()) return;
  const Ran ran = run("exec " + python + " " + quoted(in_source("tests/benchmarks/driver_test.py")));
  INFO(ran.output);
  CHECK(ran.exit_code == 0);
  CHECK(ran.output.find("\nRan 0 tests") == std::string::npos);
}

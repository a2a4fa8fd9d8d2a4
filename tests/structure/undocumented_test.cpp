// tests/jobs/undocumented: every declaration of the public headers has a comment, or its group has one.
#include "tests/data/temporary_folder.hpp"
#include "tests/tools/paths.hpp"
#include "tests/tools/python.hpp"

using namespace heed::test;

namespace {

Ran run_undocumented(const std::string& python, const std::string& files) {
  return run("exec " + python + " " + quoted(in_source("tests/jobs/undocumented")) + " --text " + files);
}

const char* const kExample = R"(// An example.
#pragma once
namespace heed {

int bare(int x);
// ---- A heading ----
struct Bare {
  int first = {};  // has a comment
  int second;
  enum Kind { one, two };

 private:
  int hidden;
};

// The group.
int sum(int x);
double sum(double x) {
  // This comment is inside a body.

  return x;
}

template <class T>
  requires(sizeof(T) > 4)
class Box {
 public:
  // For the constructor only.
  explicit Box(T x) : x_(x) {}
  Box(const Box&) = default;
  T get() const { return x_; }

  // The value.
  T value() const;
  void set(T x);

 private:
  T x_;
};

namespace detail {
int internal();
}

class Forward;
enum class Colour {
  red,  // has a comment
  green
};
#define EXAMPLE 1
}  // namespace heed
)";

}  // namespace

TEST_CASE("undocumented: no declaration of the public headers lacks a comment") {
  const std::string python = python_with("argparse, pathlib");
  if (python.empty()) return;
  const Ran ran = run_undocumented(python, "");
  INFO(ran.output);
  CHECK(ran.exit_code == 0);
  REQUIRE(ran.output.rfind("0 of ", 0) == 0);
  CHECK(std::stoi(ran.output.substr(5)) > 2000);
}

TEST_CASE("undocumented: the job finds declarations without a comment") {
  const std::string python = python_with("argparse, pathlib");
  if (python.empty()) return;
  const TemporaryFolder folder;
  const std::string file = folder.write("example.hpp", kExample).string();
  const Ran ran = run_undocumented(python, quoted(file));
  INFO(ran.output);
  CHECK(ran.exit_code == 1);
  std::string expected;
  for (const char* line :
       {"5: declaration int bare(int x)", "7: declaration struct Bare", "9: declaration int second",
        "10: declaration enum Kind", "10: declaration one", "10: declaration two", "24: declaration class Box",
        "31: declaration T get() const", "46: declaration enum class Colour", "48: declaration green",
        "50: declaration #define EXAMPLE"})
    expected += file + ":" + line + "\n";
  CHECK(ran.output == expected + "11 of 18 public declarations have no comment\n");
}

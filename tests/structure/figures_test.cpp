// tests/jobs/figures: the comments of the pages, and its results for pages and outputs of commands.
#include <fstream>

#include "tests/data/temporary_folder.hpp"
#include "tests/tools/paths.hpp"
#include "tests/tools/python.hpp"

using namespace heed::test;
namespace fs = std::filesystem;

namespace {

Ran run_figures(const std::string& python, const std::string& arguments) {
  return run("exec " + python + " " + quoted(in_source("tests/jobs/figures")) + " " + arguments + " 2>/dev/null");
}

// A source tree with one page, and a script that prints its figures.
struct Tree {
  TemporaryFolder folder;
  std::string arguments =
      "--root " + quoted(folder.path.string()) + " --build " + quoted((folder.path / "build").string());

  Tree() {
    fs::create_directories(folder.path / "docs");
    fs::create_directories(folder.path / "build/examples");
    const fs::path program = folder.path / "build/examples/train";
    std::ofstream(program) << "#!/bin/sh\n"
                              "case $2 in 1) loss=1.904;; 2) loss=1.896;; *) exit 3;; esac\n"
                              "echo loss $loss after $3 steps\n"
                              "echo '  128   17 MiB'\n"
                              "echo '| exp | 0.72 |'\n";
    fs::permissions(program, fs::perms::owner_all);
  }
  void write(const std::string& text) const { std::ofstream(folder.path / "README.md") << text; }
};

bool says_in(const Ran& ran, const std::string& part) { return ran.output.find(part) != std::string::npos; }

const std::string kStart = "<!-- figures\n$ 1 s: build/release/examples/train --seed ";

}  // namespace

TEST_CASE("figures: each comment of the pages fits its table, and no table of figures lacks one") {
  const std::string python = python_with("argparse, dataclasses");
  if (python.empty()) return;
  const Ran ran = run_figures(python, "--check");
  INFO(ran.output);
  CHECK(ran.exit_code == 0);
  CHECK(std::stoi(ran.output) > 500);
}

TEST_CASE("figures: a right figure passes and a wrong one is printed with page, line and both values") {
  const std::string python = python_with("argparse, dataclasses");
  if (python.empty()) return;
  const Tree tree;
  tree.write(R"(<!-- figures
$ 1 s: build/release/examples/train --seed (1|2) {steps}
column loss = /loss ([0-9.]+)/
-->

| model | steps | loss |
|---|---:|---:|
| small | 20 | 1.90, 1.90 |
| large | 30 | 1.904, 1.906 |

<!-- figures
$ 1 s: build/release/examples/train --seed (1|2) 5
text /a mean loss of ([0-9.]+)/ = /loss ([0-9.]+)/ mean
$ 1 s: build/release/examples/train --seed 1 5
text /([0-9]+) MiB/ = /128 +([0-9]+) MiB/ within 10%
text /([0-9.]+) times/ = /([0-9]+) +([0-9]+) MiB/ ratio
-->

It ends at a mean loss
of 1.900, with 16 MiB, 7.5 times.

<!-- figures
$ 1 s: build/release/examples/train --seed 1 5
table
-->
| op | error |
|---|---:|
| exp | 0.71 |
)");
  const Ran ran = run_figures(python, tree.arguments);
  INFO(ran.output);
  CHECK(ran.exit_code == 1);
  CHECK(says_in(ran, "README.md:8: small, loss: page 1.90, command 1.904, exact: ok\n"));
  CHECK(says_in(ran, "README.md:9: large, loss: page 1.904, command 1.904, exact: ok\n"));
  CHECK(says_in(ran, "README.md:9: large, loss: page 1.906, command 1.896, exact: DIFFERS\n"));
  CHECK(says_in(ran, "text: page 1.900, command 1.9, exact: ok\n"));
  CHECK(says_in(ran, "text: page 16, command 17, 10%: ok\n"));
  CHECK(says_in(ran, "text: page 7.5, command 7.52941, exact: ok\n"));
  CHECK(says_in(ran, "exp, error (1): page 0.71, command 0.72, exact: DIFFERS\n"));
  CHECK(says_in(ran, "6 figures are within tolerance, 2 differ, 0 were not compared; 6 commands\n"));
  CHECK(run_figures(python, tree.arguments + " --only '20$'").exit_code == 0);
}

TEST_CASE(
    "figures: a command that fails or prints no such line is a difference, and other processors are not compared") {
  const std::string python = python_with("argparse, dataclasses");
  if (python.empty()) return;
  const Tree tree;
  tree.write(kStart + "3 5\ntext /loss ([0-9.]+)/ = /loss ([0-9.]+)/\n-->\n\nloss 1.9\n\n" + kStart +
             "1 5\ntext /loss ([0-9.]+)/ = /accuracy ([0-9.]+)/\n-->\n\nloss 1.9\n\n" +
             "<!-- figures\n$ 1 s, needs wings: build/release/examples/train --seed 1 5\n"
             "text /loss ([0-9.]+)/ = /loss ([0-9.]+)/\n-->\n\nloss 1.7\n\n" +
             "<!-- figures\n$ 1 s: build/release/examples/train --data DATA/none.txt\n"
             "text /loss ([0-9.]+)/ = /loss ([0-9.]+)/\n-->\n\nloss 1.7\n");
  const Ran ran = run_figures(python, tree.arguments);
  INFO(ran.output);
  CHECK(ran.exit_code == 1);
  CHECK(says_in(ran, "FAILED with 3: build/release/examples/train --seed 3 5\n"));
  CHECK(says_in(ran, "page 1.9, command nothing, exact: DIFFERS\n"));
  CHECK(says_in(ran, "page 1.7, command -, exact: not compared (this processor lacks wings)\n"));
  CHECK(says_in(ran, "not compared (DATA/none.txt is missing; --data must name its folder)\n"));
  CHECK(says_in(ran, "0 figures are within tolerance, 2 differ, 2 were not compared"));
}

TEST_CASE("figures: a comment that does not fit its page, and a table without one, are errors") {
  const std::string python = python_with("argparse, dataclasses");
  if (python.empty()) return;
  const Tree tree;
  const std::string table = "| model | loss |\n|---|---:|\n| small | 1.9 |\n";
  const std::string start = kStart + "1 5\n";
  const std::pair<std::string, std::string> cases[] = {
      {table, "README.md:1: a table of numbers without a comment <!-- figures ... --> before it"},
      {start + "column error = /x ([0-9]+)/\n-->\n" + table, "README.md:1: 0 columns begin with 'error'"},
      {start + "cell large | loss = /x ([0-9]+)/\n-->\n" + table, "README.md:1: 0 rows begin with 'large'"},
      {start + "column loss = /x ([0-9]+) ([0-9]+)/\n-->\n" + table,
       "1 figures in small, loss, but the commands give 2"},
      {start + "text /gain ([0-9]+)/ = /x ([0-9]+)/\n-->\n" + table, "/gain ([0-9]+)/ is not in the text"},
      {start + "text /is ([0-9.]+)/ = /x ([0-9]+)/\n-->\nThe loss is 1.9.\n", "'1.9.' is not a number"},
      {start + "colum loss\n-->\n" + table, "'colum loss' is not a rule"},
      {start + "-->\n" + table, "a command without a rule"},
      {"<!-- figures: none -->\n" + table, "must be <!-- figures, lines, -->"},
  };
  for (const auto& c : cases) {
    tree.write(c.first);
    const Ran ran = run_figures(python, tree.arguments + " --check");
    INFO(c.first, ran.output);
    CHECK(ran.exit_code == 2);
    CHECK(says_in(ran, c.second));
  }
  tree.write("<!-- figures none: of a paper -->\n" + table);
  CHECK(run_figures(python, tree.arguments + " --check").exit_code == 0);
}

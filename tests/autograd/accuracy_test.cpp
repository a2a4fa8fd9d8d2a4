// docs/accuracy.md tells the float32 errors of every op on every instruction set: they are no larger.
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>

#include "benchmarks/accuracy_rows.hpp"
#include "tests/core/levels.hpp"
#include "tests/tools/paths.hpp"

using namespace heed;

namespace {

// The cells of a line of a Markdown table, without the spaces around them.
std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream in(line.substr(1));
  for (std::string cell; std::getline(in, cell, '|');) {
    const std::size_t begin = cell.find_first_not_of(' '), end = cell.find_last_not_of(' ');
    cells.push_back(begin == std::string::npos ? "" : cell.substr(begin, end - begin + 1));
  }
  return cells;
}

// By «op, inputs» and by the name of the instruction set: the errors of the value and of the derivative.
std::map<std::string, std::map<std::string, bench::AccuracyErrors>> documented() {
  std::ifstream in(test::in_source("docs/accuracy.md"));
  std::map<std::string, std::map<std::string, bench::AccuracyErrors>> table;
  std::vector<std::string> header;
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("| ")) continue;
    const std::vector<std::string> cells = cells_of(line);
    if (header.empty()) {
      header = cells;
      continue;
    }
    for (std::size_t c = 2; c + 1 < header.size() - 1; c += 2)
      table[cells.at(0) + ", " + cells.at(1)][header[c]] = {std::stod(cells.at(c)), std::stod(cells.at(c + 1))};
  }
  return table;
}

}  // namespace

TEST_CASE("accuracy: no op is less exact in float32 than docs/accuracy.md says, on each level") {
  auto table = documented();
  const std::vector<bench::AccuracyRow> rows = bench::accuracy_rows();
  CHECK(table.size() == rows.size());
#if !defined(__x86_64__)
  std::cout << "docs/accuracy.md tells the errors of x86: not compared here\n";
  return;
#endif
  heed::test::on_each_level([&] {
    std::string level = kernels::name_of(kernels::level());
    if (level == "avx512_bf16") level = "avx512";  // the same kernels
    for (const bench::AccuracyRow& row : rows) {
      CAPTURE(row.name);
      REQUIRE(table.count(row.name + ", " + row.domain) == 1);
      const auto& levels = table[row.name + ", " + row.domain];
      REQUIRE(levels.count(level) == 1);
      const bench::AccuracyErrors errors = bench::accuracy_errors(row), said = levels.at(level);
      CHECK(errors.value <= said.value + 0.006);  // the page has two digits
      CHECK(errors.derivative <= said.derivative + 0.006);
    }
  });
}

// The public headers: cmake/HeedHeaders.cmake lists them, and only they are installed. Also the names of tests, which
// follow headers and sources.
#include <doctest/doctest.h>

#include <set>

#include "tests/structure/sources.hpp"

using namespace heed::test;

namespace {

// The headers listed in cmake/HeedHeaders.cmake.
std::set<std::string> public_headers() {
  std::set<std::string> found;
  static const std::regex header("^ +([a-z0-9_/]+\\.hpp)$"),
      of_component("^set\\(HEED_(PLOT|MPI)_HEADERS ([a-z_/]+\\.hpp)\\).*");
  for (const std::string& line : read_source("cmake/HeedHeaders.cmake").lines) {
    std::smatch m;
    if (std::regex_match(line, m, header)) found.insert(m[1]);
    if (std::regex_match(line, m, of_component)) found.insert(m[2]);
  }
  return found;
}

std::string without_ending(const std::string& path) { return path.substr(0, path.rfind('.')); }

// Whether the folder has only headers that are not installed.
bool is_inside(const std::string& path) {
  return path.find("/detail/") != std::string::npos || starts_with(path, "core/kernels/");
}

}  // namespace

TEST_CASE("headers: those of the library with an example are public, and none is in a folder named detail or kernels") {
  const std::set<std::string> list = public_headers();
  CHECK(list.size() > 40);
  for (const std::string& path : list) {
    INFO(path);
    CHECK(std::filesystem::exists(kRoot / path));
    CHECK(!is_inside(path));
  }
  for (const Source& source : sources()) {
    if (!source.is_header() || !is_of_library(source.path) || list.count(source.path) == 1) continue;
    INFO(source.path, " has an example, as public headers do, but cmake/HeedHeaders.cmake does not list it");
    CHECK(std::find(source.lines.begin(), source.lines.end(), "// Example:") == source.lines.end());
  }
}

TEST_CASE("headers: public headers include only public headers") {
  const std::set<std::string> list = public_headers();
  for (const std::string& path : list) {
    for (const Include& include : read_source(path).includes) {
      INFO(path, ":", include.line, " includes ", include.name);
      CHECK(!include.quoted);
      const bool is_public = !starts_with(include.name, "heed/") || list.count(include.name.substr(5)) == 1;
      CHECK(is_public);
    }
  }
}

TEST_CASE("headers: heed.hpp has all public headers that need no other package") {
  std::set<std::string> rest = public_headers();
  for (const char* path : {"heed.hpp", "core/array.hpp", "layers/attention/conformance_doctest.hpp", "plot/plot.hpp",
                           "mpi/mpi_ranks.hpp"})
    rest.erase(path);
  for (const Include& include : read_source("heed.hpp").includes) {
    INFO(include.name);
    CHECK(rest.erase(include.name.substr(5)) == 1);
  }
  for (const std::string& path : rest) FAIL_CHECK("heed.hpp does not include ", path);
}

TEST_CASE("headers: each begins with a comment on its purpose, which ends with an example") {
  for (const std::string& path : public_headers()) {
    const Source source = read_source(path);
    std::size_t line = 0, example = 0;
    for (; starts_with(source.lines[line], "//"); ++line)
      if (source.lines[line] == "// Example:") example = line;
    INFO(path);
    CHECK(source.lines[line] == "#pragma once");
    CHECK(starts_with(source.lines[0], "// "));
    CHECK(example > 0);
    CHECK(line > example + 2);
    for (std::size_t i = example + 1; i < line; ++i) {
      const bool is_code = source.lines[i] == "//" || starts_with(source.lines[i], "//   ");
      CHECK(is_code);
    }
  }
}

TEST_CASE("headers: programs that pages show include public ones") {
  const std::set<std::string> list = public_headers();
  static const std::regex include("#include <heed/([^>]+)>");
  int found = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(kRoot / "docs")) {
    if (entry.path().extension() != ".md") continue;
    const Source page = read_source(std::filesystem::relative(entry.path(), kRoot).string());
    for (std::sregex_iterator i(page.text.begin(), page.text.end(), include), end; i != end; ++i) {
      INFO(page.path, ": ", i->str(1));
      CHECK(list.count(i->str(1)) == 1);
      ++found;
    }
  }
  CHECK(found > 0);
}

TEST_CASE("headers: each header of layers and optim has a test of its path and name") {
  int found = 0;
  for (const Source& source : sources()) {
    if (!source.is_header() || (source.folder() != "layers" && source.folder() != "optim")) continue;
    const std::string test = "tests/" + without_ending(source.path) + "_test.cpp";
    INFO(source.path, " has no ", test);
    CHECK(std::filesystem::exists(kRoot / test));
    ++found;
  }
  CHECK(found > 30);
}

TEST_CASE("headers: each test is named after a header, a source, a script or a table of test cases") {
  const std::string ending = "_test.cpp", errors = "_errors";
  const auto exists = [](const std::string& name) {
    for (const std::string& path : {name + ".hpp", name + ".cpp", name + ".kernel.cpp", "tests/" + name + ".hpp", name})
      if (std::filesystem::is_regular_file(kRoot / path)) return true;
    return false;
  };
  int found = 0;
  for (const Source& source : sources()) {
    if (!starts_with(source.path, "tests/") || !ends_with(source.path, ending)) continue;
    const std::string name = source.path.substr(6, source.path.size() - 6 - ending.size());  // core/tensor
    if (!is_of_library(name)) continue;  // examples, docs, structure, memory
    INFO(source.path, " is named after no header, source or script; its cases belong to the test of what they test");
    CHECK((exists(name) || (ends_with(name, errors) && exists(name.substr(0, name.size() - errors.size())))));
    ++found;
  }
  CHECK(found > 100);
}

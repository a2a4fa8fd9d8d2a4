// Reads the sources of the tree, for the tests of this folder.
#pragma once
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <string>
#include <vector>

#include "tests/tools/paths.hpp"

namespace heed::test {

inline const std::filesystem::path kRoot = test::in_source();

inline bool starts_with(const std::string& text, const std::string& start) { return text.rfind(start, 0) == 0; }
inline bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

inline bool is_of_library(const std::string& path) {
  for (const char* folder : {"core/", "autograd/", "layers/", "optim/", "data/", "plot/", "mpi/"})
    if (starts_with(path, folder)) return true;
  return path == "heed.hpp";
}

struct Include {
  std::string name;
  bool quoted = false;  // in quotes instead of < >
  int line = 0;
};

struct Source {
  std::string path;  // relative to the root: core/tensor.hpp
  std::string text;
  std::vector<std::string> lines;
  std::vector<Include> includes;

  std::string folder() const { return path.substr(0, path.find('/')); }  // the first folder: core
  bool is_header() const { return ends_with(path, ".hpp"); }
};

inline Source read_source(const std::string& path) {
  static const std::regex include(R"(^\s*#\s*include\s*([<"])([^>"]+)[>"].*)");
  Source s;
  s.path = path;
  std::ifstream in(kRoot / path);
  for (std::string line; std::getline(in, line);) {
    s.text += line + "\n";
    s.lines.push_back(line);
    std::smatch found;
    if (std::regex_match(line, found, include))
      s.includes.push_back({found[2], found[1] == "\"", static_cast<int>(s.lines.size())});
  }
  return s;
}

// All .cpp, .hpp and .c files.
inline const std::vector<Source>& sources() {
  static const std::vector<Source> list = [] {
    std::vector<Source> found;
    for (const char* folder :
         {"core", "autograd", "layers", "optim", "data", "io", "plot", "mpi", "examples", "tests", "benchmarks"}) {
      for (const auto& entry : std::filesystem::recursive_directory_iterator(kRoot / folder)) {
        const std::string extension = entry.path().extension().string();
        if (extension == ".cpp" || extension == ".hpp" || extension == ".c")
          found.push_back(read_source(std::filesystem::relative(entry.path(), kRoot).string()));
      }
    }
    found.push_back(read_source("heed.hpp"));
    std::sort(found.begin(), found.end(), [](const Source& a, const Source& b) { return a.path < b.path; });
    return found;
  }();
  return list;
}

}  // namespace heed::test

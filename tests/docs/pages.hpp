// Reads the pages for users: README.md and the *.md of docs/ and examples/.
#pragma once
#include <algorithm>
#include <filesystem>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "tests/data/temporary_folder.hpp"
#include "tests/tools/paths.hpp"

namespace heed::test {

inline const std::filesystem::path kRoot = test::in_source();

// A block: the lines between ``` with a language, and ```.
struct Block {
  std::string language;
  int line;  // number of its first line in the page, from 1
  std::string text;
};

// The parts of a page.
struct Page {
  std::string path;  // relative to the source tree: docs/design.md
  std::vector<Block> blocks;
  std::vector<std::string> prose;  // lines outside of blocks
  std::vector<std::string> spans;  // the text between single backticks in these lines

  // The name of the page's programs in tests/docs/CMakeLists.txt: "docs_design".
  std::string name() const {
    std::string n = path.substr(0, path.size() - 3);
    std::replace(n.begin(), n.end(), '/', '_');
    return n;
  }
};

// The lines of a text, without line feeds.
inline std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// The words of a text, separated by white space.
inline std::vector<std::string> words_of(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

inline bool starts_with(const std::string& text, const std::string& start) { return text.rfind(start, 0) == 0; }

// Reads a page of the source tree at `root`.
inline Page read_page(const std::filesystem::path& root, const std::string& path) {
  Page page;
  page.path = path;
  bool inside = false;
  int line = 0;
  for (const std::string& text : lines_of(bytes_of(root / path))) {
    ++line;
    if (starts_with(text, "```")) {
      inside = !inside;
      if (inside) page.blocks.push_back({text.substr(3), line + 1, ""});
    } else if (inside) {
      page.blocks.back().text += text + "\n";
    } else {
      page.prose.push_back(text);
      for (auto at = text.find('`'); at != std::string::npos;) {
        const auto end = text.find('`', at + 1);
        if (end == std::string::npos) break;
        page.spans.push_back(text.substr(at + 1, end - at - 1));
        at = text.find('`', end + 1);
      }
    }
  }
  return page;
}

// All pages, sorted by path.
inline std::vector<Page> pages_of(const std::filesystem::path& root) {
  std::vector<Page> pages;
  for (const char* folder : {"", "docs", "examples"})
    for (const auto& entry : std::filesystem::directory_iterator(root / folder))
      if (entry.path().extension() == ".md")
        pages.push_back(read_page(root, (std::filesystem::path(folder) / entry.path().filename()).string()));
  std::sort(pages.begin(), pages.end(), [](const Page& a, const Page& b) { return a.path < b.path; });
  return pages;
}

}  // namespace heed::test

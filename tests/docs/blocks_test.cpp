// Runs every ```cpp block of the pages, which tests/docs/CMakeLists.txt compiles. The blocks of a page run in one
// folder, so a program finds the files of blocks before it. Blocks of Python are files of docs/python, which
// tests/data/checkpoint_write_test.cpp runs. Blocks of CMake are in tests/outside/CMakeLists.txt, with which a program
// is built.
#include <cmath>

#include "tests/data/temporary_folder.hpp"
#include "tests/docs/pages.hpp"
#include "tests/support.hpp"
#include "tests/tools/paths.hpp"
#include "tests/tools/run.hpp"

using namespace heed::test;
namespace fs = std::filesystem;

namespace {

bool is_program(const Block& block) { return contains(block.text, "int main("); }

bool is_declaration(const Block& block) {
  const std::vector<std::string> words = words_of(block.text);
  return !words.empty() && (words[0] == "struct" || words[0] == "class" || starts_with(words[0], "template"));
}

Ran run_block(const Page& page, const Block& block, const fs::path& folder) {
  const fs::path programs = in_build("tests/docs");
  const std::string line = std::to_string(block.line);
  const std::string program = is_program(block) ? quoted((programs / (page.name() + "_" + line)).string())
                                                : quoted((programs / (page.name() + "_blocks")).string()) + " " + line;
  return run("cd " + quoted(folder.string()) + " && exec " + program);
}

// The output of the first C++ block of a page that contains `what`.
std::string output_of_block(const std::string& path, const std::string& what, const fs::path& folder) {
  const Page page = read_page(kRoot, path);
  for (const Block& block : page.blocks)
    if (block.language == "cpp" && contains(block.text, what)) return run_block(page, block, folder).output;
  FAIL(path, " has no block with ", what);
  return {};
}

// The number after `before` in the text.
double number_after(const std::string& text, const std::string& before) {
  const auto at = text.find(before);
  REQUIRE(at != std::string::npos);
  return std::stod(text.substr(at + before.size()));
}

}  // namespace

TEST_CASE("blocks: each C++ block of the pages runs") {
  int blocks = 0;
  for (const Page& page : pages_of(kRoot)) {
    const TemporaryFolder folder;
    for (const Block& block : page.blocks) {
      if (block.language != "cpp" || is_declaration(block)) continue;
      ++blocks;
      const Ran ran = run_block(page, block, folder.path);
      INFO(page.path, ":", block.line, "\n", ran.output);
      CHECK(ran.exit_code == 0);
      CHECK((!is_program(block) || !ran.output.empty()));
    }
  }
  CHECK(blocks >= 2);
}

TEST_CASE("blocks: the README's training program prints a validation loss, and another one writes with its model") {
  const TemporaryFolder folder;
  const std::string output = output_of_block("README.md", "result.validation_loss", folder.path);
  INFO(output);
  const double loss = number_after(output, "\nvalidation loss ");
  CHECK(loss > 0.5);
  CHECK(loss < 3);  // guessing among about 30 letters has 3.4
  CHECK(number_after(output, " after ") == 60);
  const std::string sample = output_of_block("README.md", "load_language_model", folder.path);
  CHECK(starts_with(sample, "The "));
  CHECK(sample.size() >= 4 + 80);
}

TEST_CASE("blocks: the README's loop of steps learns") {
  const TemporaryFolder folder;
  const std::string output = output_of_block("README.md", "tape.backward(loss)", folder.path);
  INFO(output);
  CHECK(number_after(output, "step 150: ") < 0.1 * number_after(output, "step 0: "));
}

TEST_CASE("blocks: each is in a language that these tests know, and ends") {
  int blocks = 0;
  for (const Page& page : pages_of(kRoot)) {
    int fences = 0;
    for (const std::string& line : lines_of(bytes_of(kRoot / page.path))) fences += contains(line, "```") ? 1 : 0;
    INFO(page.path);
    CHECK(fences == 2 * static_cast<int>(page.blocks.size()));
    for (const Block& block : page.blocks) {
      INFO(page.path, ":", block.line, " is in '", block.language, "'");
      const bool known = block.language == "cpp" || block.language == "sh" || block.language == "cmake" ||
                         block.language == "python" || block.language == "text";
      CHECK(known);
      ++blocks;
    }
  }
  CHECK(blocks > 5);
}

TEST_CASE("blocks: those of Python are the files of docs/python") {
  int blocks = 0;
  for (const Page& page : pages_of(kRoot)) {
    for (const Block& block : page.blocks) {
      if (block.language != "python") continue;
      ++blocks;
      bool found = false;
      for (const auto& entry : fs::directory_iterator(kRoot / "docs/python"))
        found = found || (entry.path().extension() == ".py" && bytes_of(entry.path()) == block.text);
      INFO(page.path, ":", block.line);
      CHECK(found);
    }
  }
  CHECK(blocks >= 3);
}

TEST_CASE("blocks: the lines of CMake are those that build a program outside of the tree") {
  const std::vector<std::string> tested = lines_of(bytes_of(kRoot / "tests/outside/CMakeLists.txt"));
  int lines = 0;
  for (const Page& page : pages_of(kRoot)) {
    for (const Block& block : page.blocks) {
      if (block.language != "cmake") continue;
      for (const std::string& line : lines_of(block.text)) {
        ++lines;
        INFO(page.path, ":", block.line, " ", line);
        CHECK(std::find(tested.begin(), tested.end(), line) != tested.end());
      }
    }
  }
  CHECK(lines >= 2);
}

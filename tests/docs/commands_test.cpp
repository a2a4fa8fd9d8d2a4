// Commands with their flags, programs, files and links on the pages exist.
#include <heed/data/tasks.hpp>
#include <heed/data/tokenizer.hpp>
#include <regex>
#include <set>

#include "tests/docs/pages.hpp"
#include "tests/support.hpp"
#include "tests/tools/paths.hpp"
#include "tests/tools/run.hpp"

using namespace heed::test;
namespace fs = std::filesystem;

namespace {

struct Command {
  std::string where;               // the path of the page
  std::string line;                // as on the page
  std::vector<std::string> words;  // up to a #
};

// The commands in comments for tests/jobs/figures: "$ 80 s: build/release/...", with lines continued after a \.
std::vector<std::string> commands_of_figures(const Page& page) {
  std::vector<std::string> found;
  bool goes_on = false;
  for (const std::string& line : page.prose) {
    if (goes_on)
      found.back() += " " + line;
    else if (starts_with(line, "$ "))
      found.push_back(line.substr(line.find(": ") + 2));
    else
      continue;
    goes_on = line.back() == '\\';
    if (goes_on) found.back().pop_back();
  }
  return found;
}

// The commands on the pages that begin with ./run, build/ or python3: in ```sh blocks, lines indented by four spaces,
// code spans, and comments for figures.
std::vector<Command> commands() {
  std::vector<Command> found;
  for (const Page& page : pages_of(kRoot)) {
    std::vector<std::string> lines = page.spans;
    for (const std::string& line : commands_of_figures(page)) lines.push_back(line);
    for (const std::string& line : page.prose)
      if (starts_with(line, "    ")) lines.push_back(line);
    for (const Block& block : page.blocks)
      if (block.language == "sh")
        for (const std::string& line : lines_of(block.text)) lines.push_back(line);
    for (const std::string& line : lines) {
      Command command{page.path, line, {}};
      for (const std::string& word : words_of(line)) {
        if (word[0] == '#') break;
        command.words.push_back(word);
      }
      if (command.words.empty()) continue;
      const std::string& first = command.words[0];
      if (first == "./run" || first == "python3" || starts_with(first, "build/")) found.push_back(command);
    }
  }
  return found;
}

std::string output_of(const std::string& command) {
  const Ran ran = run("cd " + quoted(kRoot.string()) + " && exec " + command);
  INFO(command, "\n", ran.output);
  REQUIRE(ran.exit_code == 0);
  return ran.output;
}

std::string help_of_example(const std::string& name) {
  return output_of(quoted(in_build("examples/" + name)) + " --help");
}

// The flags in a help text, as --checkpoint.
std::set<std::string> flags_in(const std::string& help) {
  const std::regex flag("--[a-z][a-z0-9-]*");
  std::set<std::string> flags;
  for (std::sregex_iterator i(help.begin(), help.end(), flag), end; i != end; ++i) flags.insert(i->str());
  return flags;
}

void check_flags(const Command& command, const std::string& help) {
  const std::set<std::string> known = flags_in(help);
  for (const std::string& word : command.words) {
    if (!starts_with(word, "--") || word == "--") continue;
    INFO(command.where, ": ", word);
    CHECK(known.count(word.substr(0, word.find('='))) == 1);
  }
}

}  // namespace

TEST_CASE("pages: each ./run COMMAND exists and has the flags") {
  const std::string help = output_of("./run help");
  std::set<std::string> known = {"help"};
  for (const std::string& line : lines_of(help))
    if (starts_with(line, "  ") && line[2] != ' ') known.insert(words_of(line)[0]);
  CHECK(known.size() >= 7);
  int checked = 0;
  for (const Command& command : commands()) {
    if (command.words[0] != "./run") continue;
    REQUIRE(command.words.size() >= 2);
    const std::string& verb = command.words[1];
    INFO(command.where, ": ./run ", verb);
    CHECK(known.count(verb) == 1);
    if (verb == "train")
      check_flags(command, help_of_example("train_lm"));
    else if (verb == "generate")
      check_flags(command, help_of_example("generate"));
    else
      check_flags(command, help);
    ++checked;
  }
  CHECK(checked >= 5);
}

TEST_CASE("pages: each program in build/ is one that the build makes, and has the flags") {
  int checked = 0;
  for (const Command& command : commands()) {
    if (!starts_with(command.words[0], "build/")) continue;
    const fs::path path = command.words[0];
    INFO(command.where, ": ", path.string());
    ++checked;
    if (path == "build/release/examples/" || contains(path.string(), "{")) continue;  // a cell of a table names it
    const std::string name = path.filename().string();
    if (path.parent_path() == "build/release/examples/articles") {
      CHECK(fs::exists(kRoot / "examples" / "articles" / (name + ".cpp")));
      check_flags(command, help_of_example("articles/" + name));
    } else if (path.parent_path() == "build/release/examples") {
      const fs::path folder = kRoot / "examples";
      const bool exists = fs::exists(folder / (name + ".cpp")) || fs::exists(folder / "experiments" / (name + ".cpp"));
      CHECK(exists);
      if (exists) check_flags(command, help_of_example(name));
    } else {
      CHECK(path.parent_path() == "build/release/benchmarks");
      REQUIRE(starts_with(name, "bench_"));
      CHECK(fs::exists(kRoot / "benchmarks" / (name.substr(6) + ".cpp")));
    }
  }
  CHECK(checked >= 9);
}

TEST_CASE("pages: the prompts of their commands have the characters of the built-in stories") {
  const heed::CharTokenizer characters("\n" + heed::Stories().text(0, 1000000));  // the default of train_lm
  const std::regex prompt("--prompt \"([^\"]*)\""), mask(R"(\[MASK\])");
  int checked = 0;
  for (const Command& command : commands()) {
    std::smatch found;
    if (!std::regex_search(command.line, found, prompt)) continue;
    const std::string text = std::regex_replace(found.str(1), mask, "");
    INFO(command.where, ": ", text);
    CHECK(error_of([&] { characters.encode(text); }) == "");
    ++checked;
  }
  CHECK(checked >= 5);
}

TEST_CASE("pages: links lead to files") {
  const std::regex link(R"(\]\(([^)#]+)[^)]*\))");
  int checked = 0;
  for (const Page& page : pages_of(kRoot)) {
    for (const std::string& line : page.prose) {
      for (std::sregex_iterator i(line.begin(), line.end(), link), end; i != end; ++i) {
        const std::string target = (*i)[1];
        if (starts_with(target, "https://")) continue;
        INFO(page.path, ": ", target);
        CHECK(fs::exists((kRoot / page.path).parent_path() / target));
        ++checked;
      }
    }
  }
  CHECK(checked >= 10);
}

TEST_CASE("pages: files and folders of the tree that they name exist") {
  const std::regex path(R"((core|autograd|layers|optim|data|examples|tests|benchmarks|docs|cmake)/[a-z0-9_/.]*)");
  int checked = 0;
  for (const Page& page : pages_of(kRoot)) {
    std::vector<std::string> names = page.spans;
    for (const Command& command : commands())
      if (command.where == page.path && command.words[0] == "python3")
        names.insert(names.end(), command.words.begin() + 1, command.words.end());
    for (const std::string& name : names) {
      if (!std::regex_match(name, path)) continue;
      INFO(page.path, ": ", name);
      CHECK(fs::exists(kRoot / name));
      ++checked;
    }
  }
  CHECK(checked >= 10);
}

// Runs programs, and checks their output and logs.
#include "tests/examples/programs.hpp"
#include "tests/tools/paths.hpp"

#include <filesystem>
#include <fstream>
#include <sstream>

namespace heed::test {

std::string in_background(const std::string& command) {
  return "env --default-signal=INT " + command + " & pid=$!; ";
}

std::string program(const std::string& name, const std::string& folder) {
  return quoted(in_build(folder + "/" + name));
}

bool has_program(const std::string& name) {
#if defined(HEED_SANITIZED_ADDRESS)
  return std::filesystem::exists(in_build("examples/" + name));
#else
  return !name.empty();  // a program that is missing fails the test
#endif
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::size_t count_of(const std::string& part, const std::string& text) {
  std::size_t n = 0;
  for (std::size_t i = text.find(part); i != std::string::npos; i = text.find(part, i + 1)) ++n;
  return n;
}

void check_refused(const Ran& ran, int exit_code, const std::string& sentence) {
  INFO(ran.output);
  CHECK(ran.exit_code == exit_code);
  CHECK(contains(ran.output, sentence));
  CHECK(count_of("\n", ran.output) == 1);
  const std::string name = ran.output.substr(0, ran.output.find(": ") + 2);
  CHECK_FALSE(ran.output.starts_with(name + name));
}

bool same_losses(const std::string& a, const std::string& b) {
  std::vector<nlohmann::json> x = json_lines(a), y = json_lines(b);
  for (auto* log : {&x, &y})
    for (nlohmann::json& entry : *log)
      for (const char* speed : {"tokens_per_second", "samples_per_second"}) entry.erase(speed);
  return x == y;
}

Training::Training(const std::string& programs) : programs_(programs) {
  std::ofstream text(file("text.txt"));
  for (int i = 0; i < 12; ++i)
    text << "The quick brown fox jumps over the lazy dog. Pack my box with five dozen jugs, " << i << " of them.\n";
}

std::string starting(const std::string& flags) {
  for (const char* flag : {"--resume", "--overwrite", "--help"})
    if (contains(flags, flag)) return flags;
  return "--overwrite " + flags;
}

std::string Training::on_stories(const std::string& flags) const {
  return "env -C " + quoted(folder()) + " " + program("train_lm", programs_) + " --sample 0 --checkpoint lm.h5 " +
         starting(flags);
}

std::string Training::arguments(const std::string& flags) const {
  return on_stories("--data text.txt --layers 1 --heads 2 --width 16 --context 16 --batch 4 " + flags);
}

Ran Training::killed_at_save(const std::string& flags, int n) const {
  const Training other(programs_);
  const std::string calls = other.file("calls");
  const Ran whole = test::run(other.arguments(flags), {.prefix = other.folder(), .mode = "", .log = calls});
  INFO(whole.output);
  REQUIRE(whole.exit_code == 0);
  int call = 0, saves = 0;
  for (const std::string& line : lines_of(bytes_of(calls))) {
    ++call;
    if (contains(line, " rename ") && ++saves == n) break;
  }
  REQUIRE(saves == n);
  return test::run(arguments(flags), {.prefix = folder(), .mode = "kill", .at = call});
}

}  // namespace heed::test

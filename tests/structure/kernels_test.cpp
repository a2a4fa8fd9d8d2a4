// Kernels are compiled once per instruction set. They must not define symbols that the rest of the program may use: see
// cmake/HeedKernels.cmake.
#include <doctest/doctest.h>

#include <iostream>
#include <map>
#include <set>

#include "tests/structure/sources.hpp"
#include "tests/support.hpp"
#include "tests/tools/paths.hpp"
#include "tests/tools/run.hpp"

using namespace heed::test;
namespace fs = std::filesystem;

namespace {

const char* const kLevels[] = {"baseline", "avx2", "avx512", "avx512_bf16"};

// The symbols that the object files of a level define. Weak symbols (inline functions, templates, their variables) may
// be in several objects, and the linker keeps one copy for the whole program.
struct Symbols {
  std::set<std::string> weak, strong;
};

// The object files that tests/structure/CMakeLists.txt lists for a level; none if the level was not compiled.
std::vector<std::string> objects_of(const std::string& level) {
  std::ifstream list(in_build("tests/structure/") + level + ".objects");
  std::vector<std::string> files;
  for (std::string file; std::getline(list, file);) files.push_back(file);
  return files;
}

Symbols symbols_of(const std::vector<std::string>& objects) {
  Symbols symbols;
  std::string files;
  for (const std::string& file : objects) files += " " + quoted(file);
  const Ran ran = run("exec nm --demangle --defined-only --extern-only" + files);
  REQUIRE(ran.exit_code == 0);
  std::istringstream lines(ran.output);
  for (std::string line; std::getline(lines, line);) {
    if (line.size() < 20 || line[16] != ' ' || line[18] != ' ') continue;  // address, kind, name
    const char kind = line[17];
    const bool is_weak = kind == 'W' || kind == 'V' || kind == 'u';
    (is_weak ? symbols.weak : symbols.strong).insert(line.substr(19));
  }
  return symbols;
}

}  // namespace

TEST_CASE("kernels: their sources include xsimd, C headers and each other, nothing else") {
  const std::set<std::string> allowed = {"math.h", "stddef.h", "stdint.h", "string.h", "xsimd/xsimd.hpp"};
  std::vector<std::string> reached;
  for (const Source& source : sources())
    if (std::regex_match(source.path, std::regex(".*\\.(kernel|dot)\\.cpp")))
      reached.push_back(source.path);
  CHECK(reached.size() >= 10);
  for (std::size_t i = 0; i < reached.size(); ++i) {
    for (const Include& include : read_source(reached[i]).includes) {
      INFO(reached[i], ":", include.line, " includes ", include.name);
      if (!include.quoted) {
        CHECK(allowed.count(include.name) == 1);
        continue;
      }
      const fs::path local = (fs::path(reached[i]).parent_path() / include.name).lexically_normal();
      const std::string path = fs::exists(kRoot / local) ? local.string() : include.name;
      REQUIRE(fs::exists(kRoot / path));
      if (std::find(reached.begin(), reached.end(), path) == reached.end()) reached.push_back(path);
    }
  }
}

TEST_CASE("kernels: no symbol of one instruction set can replace a symbol of another or of the rest of the program") {
  // An xsimd function that is not inlined has its instruction set in its name, and no other level uses that set.
  const std::map<std::string, std::string> arch = {
      {"avx2", "xsimd::fma3<xsimd::avx2>"}, {"avx512", "xsimd::avx512bw"}, {"avx512_bf16", "xsimd::avx512bw"}};
  // Exactly the levels that dispatch.hpp expects were compiled.
  std::map<std::string, Symbols> levels;
  for (const char* level : kLevels)
    if (const auto objects = objects_of(level); !objects.empty()) levels[level] = symbols_of(objects);
#ifdef HEED_HAS_baseline
  CHECK(levels.count("baseline") == 1);
#endif
#ifdef HEED_HAS_avx2
  CHECK(levels.count("avx2") == 1);
#endif
#ifdef HEED_HAS_avx512
  CHECK(levels.count("avx512") == 1);
#endif
#ifdef HEED_HAS_avx512_bf16
  CHECK(levels.count("avx512_bf16") == 1);
#else
  std::cout << "the level avx512_bf16 was not compiled: not tested here\n";
#endif
  for (const auto& entry : levels) {  // no structured binding, which lambdas of INFO cannot capture in clang 14
    const std::string& level = entry.first;
    const auto& symbols = entry.second;
    const std::string own = "heed::kernels::" + level + "::";
    int in_namespace = 0;
    for (const std::string& name : symbols.strong) {
      if (starts_with(name, "__odr_asan.")) continue;
      INFO("the objects of ", level, " define ", name, ", which is not in the level's namespace");
      CHECK(contains(name, own));
      ++in_namespace;
    }
    CHECK(in_namespace > 0);
    if (level == "baseline") continue;  // symbols of the baseline run on every machine
    for (const std::string& name : symbols.weak) {
      const bool of_level = contains(name, own) || (contains(name, "xsimd::") && contains(name, arch.at(level)));
      // The pointer to the exception handler is the same in all objects.
      if (of_level || name == "DW.ref.__gxx_personality_v0") continue;
      INFO("the linker may take ", name, " of the objects of ", level, " for the whole program");
      CHECK(false);
    }
    for (const auto& others : levels) {
      const std::string& other = others.first;
      const auto& theirs = others.second;
      if (other == level || (starts_with(other, "avx512") && starts_with(level, "avx512"))) continue;
      for (const std::string& name : symbols.weak) {
        INFO("the objects of ", level, " and of ", other, " share ", name);
        const bool shared = theirs.weak.count(name) == 1 && name != "DW.ref.__gxx_personality_v0";
        CHECK(!shared);
      }
    }
  }
}

// Allowed includes: the order of the folders (docs/design.md, Layout), and the files that may include each package.
#include <doctest/doctest.h>

#include <map>
#include <set>

#include "tests/structure/sources.hpp"

using namespace heed::test;

namespace {

// The other folders of the library that a folder may include.
const std::map<std::string, std::set<std::string>> kSees = {{"core", {}},
                                                            {"autograd", {"core"}},
                                                            {"layers", {"core", "autograd", "data"}},
                                                            {"data", {"core"}},
                                                            {"io", {"core", "autograd", "data", "layers"}},
                                                            {"optim", {"core", "autograd", "data"}},
                                                            {"mpi", {"core", "optim"}},
                                                            {"plot", {"core", "data", "optim"}}};

// The headers of a package and the files that may include them, as regular expressions.
struct Package {
  const char* headers;
  const char* users;
};
const Package kPackages[] = {
    {"(oneapi/)?tbb/.*", "core/scheduler.cpp"},
    {"xsimd/.*", "core/kernels/simd/simd.hpp"},
    {"(xtensor|xtl)/.*", "core/array.hpp|tests/core/array_test.cpp"},
    {"(hdf5|H5).*", "data/detail/checkpoint_handle.hpp"},
    {"sentencepiece.*", "data/sentencepiece.cpp"},
    {"unicode/.*", "data/unicode.cpp|io/tokenizer/unicode.cpp"},
    {"pcre2.h", "io/tokenizer/pattern.cpp"},
    {"zlib.h", "io/npz.cpp|tests/tools/fuzz/mutate.cpp"},
    {"sanitizer/.*", "tests/tools/fuzz/target.cpp"},
    {"xxhash.h",
     "autograd/recompute.cpp|data/(detail/(content_hash|token_header).hpp|tokenizer.cpp)|tests/tools/seal.hpp"},
    {"nlohmann/.*",
     "data/(example_files|tokenizer).cpp|io/(chat_template_files|json|safetensors_header|tokenizer/json).cpp|"
     "layers/model_config.cpp|"
     "optim/(profile/trace|run/(log|settings)).cpp|(examples|tests)/.*"},
    {"CLI/.*", "examples/support/command_line.cpp"},  // slow to compile: ten seconds
    {"gnuplot-iostream.h", "plot/detail/drawing.hpp"},
    {"mpi.h", "mpi/mpi_ranks.cpp"},
    {"doctest/.*", "tests/.*"},
};

bool matches(const std::string& text, const char* expression) { return std::regex_match(text, std::regex(expression)); }

// <vector>, <math.h>, <sys/mman.h>
bool is_of_the_system(const std::string& name) {
  static const std::regex plain("[a-z_]+|(sys/)?[a-z]+\\.h");
  return std::regex_match(name, plain);
}

}  // namespace

TEST_CASE("includes: a folder includes only the folders below it") {
  int checked = 0;
  for (const Source& source : sources()) {
    const auto sees = kSees.find(source.folder());
    if (sees == kSees.end()) continue;
    for (const Include& include : source.includes) {
      if (include.quoted || !starts_with(include.name, "heed/")) continue;
      ++checked;
      const std::string path = include.name.substr(5), folder = path.substr(0, path.find('/'));
      const bool allowed = folder == sees->first || sees->second.count(folder) == 1;
      INFO(source.path, ":", include.line, " includes ", include.name);
      CHECK(allowed);
    }
  }
  CHECK(checked > 200);
}

TEST_CASE("includes: the library and the programs include heed by <heed/...>, tests and benchmarks their own by path") {
  for (const Source& source : sources()) {
    for (const Include& include : source.includes) {
      INFO(source.path, ":", include.line, " includes ", include.name);
      if (starts_with(include.name, "heed/")) {
        CHECK(!include.quoted);
        CHECK(std::filesystem::exists(kRoot / include.name.substr(5)));
      } else if (include.quoted) {
        const bool in_library = kSees.count(source.folder()) == 1 && !starts_with(source.path, "core/kernels/");
        CHECK(!in_library);
        const auto local = (kRoot / source.path).parent_path() / include.name;
        const bool exists = std::filesystem::exists(kRoot / include.name) || std::filesystem::exists(local);
        CHECK(exists);
      }
    }
  }
}

TEST_CASE("includes: only the listed files include a package") {
  std::map<std::string, int> found;
  for (const Source& source : sources()) {
    for (const Include& include : source.includes) {
      if (include.quoted || starts_with(include.name, "heed/")) continue;
      INFO(source.path, ":", include.line, " includes ", include.name);
      const Package* of = nullptr;
      for (const Package& package : kPackages)
        if (matches(include.name, package.headers)) of = &package;
      if (of == nullptr) {
        CHECK_MESSAGE(is_of_the_system(include.name),
                      "list the package in this test, with the files that may include it");
      } else {
        CHECK(matches(source.path, of->users));
        ++found[of->headers];
      }
    }
  }
  for (const Package& package : kPackages) {
    INFO(std::string(package.headers));
    CHECK(found[package.headers] > 0);
  }
}

TEST_CASE("includes: all headers that heed.hpp includes are installed, and none includes a package") {
  std::vector<std::string> reached = {"heed.hpp"};
  for (std::size_t i = 0; i < reached.size(); ++i) {
    for (const Include& include : read_source(reached[i]).includes) {
      INFO(reached[i], ":", include.line, " includes ", include.name);
      if (!starts_with(include.name, "heed/")) {
        CHECK(is_of_the_system(include.name));
        for (const Package& package : kPackages) CHECK(!matches(include.name, package.headers));
        continue;
      }
      const std::string path = include.name.substr(5);
      const bool installed = !starts_with(path, "core/kernels/");
      CHECK(installed);
      if (std::find(reached.begin(), reached.end(), path) == reached.end()) reached.push_back(path);
    }
  }
  CHECK(reached.size() > 40);
}

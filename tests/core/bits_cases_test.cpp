// Trainings and ops have the bits that tests/reference/training_bits.txt stores as hashes, on every level with fma.
#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>

#include "tests/core/bits_cases.hpp"
#include "tests/core/levels.hpp"
#include "tests/support.hpp"
#include "tests/tools/paths.hpp"

using namespace heed;
using heed::test::bits_cases, heed::test::on_each_level;

// The hashes of this machine are written to the file that HEED_TRAINING_BITS names, if it is set.
RELEASE_TEST_CASE("trainings and ops: the same bits on every level with fma, and on every machine") {
  const std::string path = test::in_source("tests/reference/training_bits.txt");
  std::map<std::string, std::string> stored, now;
  std::ifstream file(path);
  for (std::string hash, name; file >> hash >> std::ws && std::getline(file, name);) stored[name] = hash;
  on_each_level([&] {
    if (!kernels::fuses(kernels::level())) return;
    for (int number = 0; const auto& entry : bits_cases()) {
      if (!test::is_taken(number++, 4)) continue;
      const auto& name = entry.first;
      const auto& run = entry.second;
      if (test::repeats_floats(kernels::level()) && !name.ends_with(" bf16")) continue;
      CAPTURE(name);
      const std::string hash = now[name] = run();
      CHECK_MESSAGE(hash == stored[name], name);
    }
  });
  if (const char* out = std::getenv("HEED_TRAINING_BITS")) {
    std::ofstream to(out);
    for (const auto& [name, hash] : now) to << hash << " " << name << "\n";
    return;
  }
  CHECK((now.empty() || stored.size() == bits_cases().size()));
}

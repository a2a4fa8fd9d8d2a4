// The choice of the level (instruction set): by the machine, by HEED_ARCH, and by set_level().
#include <filesystem>
#include <heed/core/kernels/dispatch/dispatch.hpp>
#include <iostream>

#include "tests/support.hpp"
#include "tests/tools/paths.hpp"
#include "tests/tools/run.hpp"

using namespace heed;
using kernels::Level;
using test::contains;
using test::error_of;

TEST_CASE("dispatch: the level of this process, for the case below") {
  const std::string error = error_of([] { arch(); });
  std::cout << "level: " << (error.empty() ? arch() : error) << "\n";
}

TEST_CASE("dispatch: HEED_ARCH sets the level, and an invalid one is an error that lists the levels of the machine") {
  const std::string self = test::emulator() + test::quoted(std::filesystem::read_symlink("/proc/self/exe").string()) +
                           " --test-case='dispatch: the level of this process*'";
  const auto with = [&](const std::string& arch) { return test::run("HEED_ARCH=" + arch + " " + self).output; };
  std::string best, all;
  for (int i = 0; i < kernels::kLevels; ++i) {
    const Level l = static_cast<Level>(i);
    const std::string name = kernels::name_of(l);
    if (kernels::available(l)) {
      CHECK(contains(with(name), "level: " + name + "\n"));
      best = name;
      all += (all.empty() ? "" : ", ") + name;
    }
  }
#ifdef HEED_HAS_baseline
  CHECK(contains(all, kernels::name_of(kernels::Level::baseline)));
#endif
  CHECK(contains(with("''"), "level: " + best + "\n"));
  for (const std::string wrong : {"sse9", "AVX2"})
    CHECK(
        contains(with(wrong), "level: HEED_ARCH is '" + wrong + "'; on this machine it must be one of " + all + "\n"));
  for (int i = 0; i < kernels::kLevels; ++i) {
    const Level l = static_cast<Level>(i);
    if (kernels::available(l)) continue;
    const std::string name = kernels::name_of(l);
    CHECK(contains(with(name), "level: HEED_ARCH is '" + name + "'; on this machine it must be one of " + all + "\n"));
    CHECK(error_of([&] { kernels::set_level(l); }) ==
          "set_level: " + name + " is not available; on this machine it must be one of " + all);
  }
}

// --profile and --trace of train_lm.
#include <filesystem>
#include <map>

#include "tests/examples/programs.hpp"

using namespace heed;
using test::contains;
using test::Ran;
using test::Training;

namespace {

// The number of spans per name; those of steps are counted as "step".
std::map<std::string, int> spans_of(const nlohmann::json& trace) {
  std::map<std::string, int> names;
  for (const auto& e : trace.at("traceEvents")) {
    if (e.at("ph") != "X") continue;
    CHECK(e.at("dur").get<double>() >= 0);
    const std::string name = e.at("name");
    ++names[name.starts_with("step ") ? "step" : name];
  }
  return names;
}

void check_profile(const Training& t, const Ran& ran, int steps) {
  INFO(ran.output);
  REQUIRE(ran.exit_code == 0);
  const std::string what = std::to_string(steps) + (steps == 1 ? " step" : " steps");
  CHECK(test::count_of("profile of " + what + ": ", ran.output) == 1);
  for (const char* part : {"ms per step, ", "% of the peak", "\nattention ", "\nlinear ", "\noptimizer ", "\nbatch ",
                           "attention.qkv", "\ntrace: trace.json\n"}) {
    INFO(part);
    CHECK(contains(ran.output, part));
  }
  const nlohmann::json trace = test::json_file(t.file("trace.json"));
  CHECK(trace.at("otherData").at("steps") == steps);
  std::map<std::string, int> names = spans_of(trace);
  for (const char* name : {"step", "forward", "backward", "optimizer", "batch", "attention", "attention backward"}) {
    INFO(name);
    CHECK(names[name] == steps);
  }
  CHECK(names["blocks.0.attention.qkv"] == 2 * steps);
}

}  // namespace

TEST_CASE("train_lm: --profile reports steps after the warm-up, --trace writes them, also in a resumed run") {
  const Training t, few;
  const std::string flags = "--profile 4 --trace trace.json --val-fraction 0 --checkpoint-every 6 --steps ";
  CHECK(t.killed_at_save(flags + "18", 2).signal == 9);
  CHECK(!std::filesystem::exists(t.file("trace.json")));
  const Ran resumed = t.run(flags + "18 --resume");
  CHECK(contains(resumed.output, "resumed at step 6\n"));
  check_profile(t, resumed, 4);
  check_profile(few, few.run(flags + "7"), 2);  // the run ends before the profile does
}

RELEASE_TEST_CASE(
    "train_lm: a profile changes no bit of a run, one that ends in the warm-up says so, and --trace needs it") {
  const Training plain, profiled;
  const Ran ran = profiled.run("--steps 9 --profile 3 --log log");
  CHECK(ran.exit_code == 0);
  CHECK(plain.run("--steps 9 --log log").exit_code == 0);
  CHECK(test::bytes_of(plain.file("lm.h5")) == test::bytes_of(profiled.file("lm.h5")));
  CHECK(!contains(ran.output, "trace: "));
  const Ran early = profiled.run("--steps 4 --profile 3 --trace early.json");
  INFO(early.output);
  CHECK(early.exit_code == 0);
  CHECK(contains(early.output, "profile: no step was measured: the warm-up is not over\n"));
  test::check_refused(profiled.run("--steps 4 --trace early.json"), 2, "--trace");
}

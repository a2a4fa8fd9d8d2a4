// Names of settings in messages: a flag is named only if it was given.
#include "examples/support/setting_origins.hpp"

#include "tests/support.hpp"

using namespace heed::examples;

TEST_CASE("origins of settings: a flag that was given, a checkpoint's file, a default") {
  std::string steps, warmup, lr;
  CommandLine line("about", "program");
  line.add("--steps", steps, "steps", anything("N"));
  line.add("--warmup", warmup, "warm-up", anything("N"));
  line.add("--lr", lr, "rate", anything("X"));
  std::string program = "program", flag = "--steps", word = "1";
  char* words[] = {program.data(), flag.data(), word.data()};
  REQUIRE_FALSE(line.parse(3, words));
  const SettingOrigins new_run = line, resumed(line, "lm.h5", is_among(R"({"steps": 9, "warmup": 100})"));
  CHECK(new_run.describe("--steps", "1") == "--steps is 1");
  CHECK(new_run.describe("--warmup", "100") == "warmup is 100 (the default)");
  CHECK(resumed.describe("--steps", "1") == "--steps is 1");
  CHECK(resumed.describe("--warmup", "100") == "warmup is 100 (stored in lm.h5)");
  CHECK(resumed.describe("--lr", "0.1") == "lr is 0.1 (the default)");
}

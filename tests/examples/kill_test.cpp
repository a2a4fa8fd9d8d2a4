// A training that is killed at any moment and resumed ends like an undisturbed one: the same bits of weights, and a log
// with the same losses, without missing or repeated steps.
#include <algorithm>
#include <heed/core/random.hpp>

#include "tests/examples/programs.hpp"

using namespace heed;
using test::bytes_of;
using test::Ran;
using test::Training;

namespace {

// The same training, undisturbed.
struct Whole {
  Training training;
  std::string checkpoint, log;

  explicit Whole(const std::string& flags) : log(training.file("log")) {
    const Ran ran = training.run(flags + " --log " + log);
    INFO(ran.output);
    REQUIRE(ran.exit_code == 0);
    checkpoint = bytes_of(training.file("lm.h5"));
  }
};

}  // namespace

RELEASE_TEST_CASE("killed at random moments, saving often, and resumed") {
  // Enough steps that all kills fall within the run.
  const std::string steps = test::kSanitized ? "200" : "1250";
  const std::string flags = "--steps " + steps + " --dropout 0.1 --eval-every 50 --eval-batches 1 --checkpoint-every 5";
  const Whole whole(flags);
  const Training t;
  Rng rng(20);
  const int expected = test::kSanitized ? 4 : 10;
  int kills = 0, runs = 0;
  Ran ran;
  for (; kills < expected && runs < 200; ++runs) {
    const std::string seconds = std::to_string((0.03 + 0.2 * rng.uniform()) * (test::kSanitized ? 5 : 1));
    // A finished run cannot be killed any more, so the next one starts from the beginning.
    ran = test::run("timeout -s KILL " + seconds + " " +
                    t.arguments(flags + " --resume-or-start --log " + t.file("log")));
    const bool killed = ran.signal == 9 || ran.exit_code == 137;
    INFO(ran.output);
    REQUIRE((killed || ran.exit_code == 0));
    if (killed)
      ++kills;
    else
      std::filesystem::remove(t.file("lm.h5"));
  }
  CHECK(kills == expected);
  ran = t.run(flags + " --resume-or-start --log " + t.file("log"));
  INFO(ran.output);
  REQUIRE(ran.exit_code == 0);
  CHECK((bytes_of(t.file("lm.h5")) == whole.checkpoint));
  CHECK(test::same_losses(t.file("log"), whole.log));
}

RELEASE_TEST_CASE("killed or failing at each write, sync and rename of its files in turn, and resumed") {
  const std::string flags = "--steps 6 --checkpoint-every 3 --eval-every 2 --eval-batches 1";
  const Whole whole(flags);
  int calls = 0;
  {
    const Training t;
    const Ran ran = test::run(t.arguments(flags + " --log " + t.file("log")),
                              {.prefix = t.folder(), .mode = "", .log = t.file("calls")});
    REQUIRE(ran.exit_code == 0);
    const std::string lines = bytes_of(t.file("calls"));
    calls = static_cast<int>(std::count(lines.begin(), lines.end(), '\n'));
    for (const char* name : {"write", "fsync", "rename"}) CHECK(test::contains(lines, name));
  }
  CHECK(calls > 12);
  int wrong = 0;
  for (const std::string mode : {"kill", "tear", "enospc", "eio"}) {
    for (int at = 1; at <= calls; ++at) {
      if (!test::is_taken(at, 5)) continue;
      const Training t;
      const Ran ran =
          test::run(t.arguments(flags + " --log " + t.file("log")), {.prefix = t.folder(), .mode = mode, .at = at});
      const bool killed = mode == "kill" || mode == "tear";
      INFO(mode << " at call " << at << ": " << ran.output);
      // An error of the disk is printed as one sentence. Some of the last calls, such as unlink of a missing file, may
      // fail without harm.
      if (killed)
        CHECK(ran.signal == 9);
      else
        CHECK((ran.exit_code == 1 || ran.exit_code == 0));
      const Ran again = t.run(flags + " --resume-or-start --log " + t.file("log"));
      INFO(again.output);
      CHECK(again.exit_code == 0);
      if (bytes_of(t.file("lm.h5")) != whole.checkpoint || !test::same_losses(t.file("log"), whole.log)) ++wrong;
    }
  }
  CHECK(wrong == 0);
}

// How a run ends: by a signal, the time limit or patience, as its result says.
#include <chrono>
#include <cmath>
#include <csignal>
#include <thread>

#include "tests/data/temporary_folder.hpp"
#include "tests/optim/plane_run.hpp"

using namespace heed;
using test::Plane;
using test::PlaneRun;
using test::same_bits;
using test::TemporaryFolder;
using test::ScriptedRun;

TEST_CASE("run: after a signal it finishes the step, saves and returns, and a resumed run continues") {
  struct Signalling {  // Ctrl-C while the batch of step 6 is prepared
    Batch batch(std::uint64_t seed, std::uint64_t step) const {
      if (step == 5) std::raise(SIGINT);
      return Plane{}.batch(seed, step);
    }
  };
  const TemporaryFolder folder;
  const RunOptions options{.steps = 20,
                           .checkpoint = {.path = folder.path / "m.h5", .start = RunStart::resume_or_start},
                           .handle_interrupt = true};
  PlaneRun stopped, resumed, whole;
  const RunResult r = stopped.go(options, Signalling{});
  CHECK(r.interrupted);
  CHECK(r.steps >= 5);  // the batch may be prepared during the previous step
  CHECK(r.steps <= 6);
  CHECK(resumed.go(options).steps == 20);
  whole.go({.steps = 20});
  CHECK((test::same_bits(resumed.model.up.weight, whole.model.up.weight)));
}

TEST_CASE("run: the time limit ends a run with an evaluation and a save, and resuming gives the bits of a whole run") {
  const TemporaryFolder folder;
  const auto slowly = [](RunStep& s) {
    if (s.step == 3) std::this_thread::sleep_for(std::chrono::milliseconds(250));
  };
  RunOptions o{.steps = kUntilStopped, .seconds = 0.2, .evaluation = {.every = 0}, .after_step = slowly};
  o.checkpoint.path = folder.path / "time.h5", o.checkpoint.start = RunStart::resume_or_start;
  PlaneRun timed;
  RunResult result = timed.go(o);
  CHECK(result.stopped);
  const Index made = result.steps;
  CHECK(made >= 1);
  CHECK(made <= 4);  // step 3 exceeds the time limit, and at most one more step follows
  CHECK(result.history.validation_losses.back().first == made);
  o.steps = 6, o.seconds = 0, o.after_step = {};
  PlaneRun resumed, whole;
  result = resumed.go(o);
  CHECK(result.resumed_from == made);
  whole.go({.steps = 6});
  CHECK(same_bits(resumed.model.up.weight, whole.model.up.weight));
}

TEST_CASE("run: patience ends a run after this number of evaluations without improvement") {
  const auto steps = [](std::vector<double> losses, RunOptions o) {
    o.steps = static_cast<Index>(losses.size()), o.evaluation.every = 1;
    ScriptedRun s{losses, losses};
    const RunResult r = s.go(o);
    CHECK(r.stopped == (r.steps < o.steps));
    CHECK_FALSE(r.interrupted);
    return r.steps;
  };
  CHECK(steps({5, 4, 3, 2, 1}, {.evaluation = {.patience = 1}}) == 5);
  CHECK(steps({5, 4, 4, 2, 1}, {.evaluation = {.patience = 1}}) == 3);
  CHECK(steps({5, 4, 6, 4, 3, 5, 5, 5, 1}, {.evaluation = {.patience = 3}}) == 8);
  CHECK(steps({NAN, NAN, 1, 1}, {.evaluation = {.patience = 2}}) == 2);
  CHECK(steps({NAN, 2, 1, 1}, {.evaluation = {.patience = 2}}) == 4);
  CHECK(steps({1, 2, 3, 2, 2}, {.evaluation = {.monitor = "accuracy", .maximize = true, .patience = 2}}) == 5);
  CHECK(steps({3, 4, 5}, {}) == 3);
}

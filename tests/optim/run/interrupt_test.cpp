// Signals that request the end of a program.
#include <unistd.h>

#include <csignal>
#include <heed/optim/run/interrupt.hpp>

#include "tests/optim/plane_run.hpp"
#include "tests/support.hpp"

using heed::detail::InterruptScope;

namespace {

// A test program has its own handlers for some signals.
auto handler_of(int signal) {
  struct sigaction now;
  sigaction(signal, nullptr, &now);
  return now.sa_handler;
}

}  // namespace

TEST_CASE("interrupt: each signal that requests an end is noted, and the next scope starts without it") {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const InterruptScope scope;
    CHECK(!scope.requested());
    std::raise(signal);
    CHECK(scope.requested());
    CHECK((handler_of(signal) == SIG_DFL));  // a second signal ends the program
  }
  const InterruptScope next;
  CHECK(!next.requested());
}

TEST_CASE("interrupt: ignored signals stay ignored, and handlers are restored") {
  const auto before = std::signal(SIGHUP, SIG_IGN), interrupt = handler_of(SIGINT), terminate = handler_of(SIGTERM);
  {
    const InterruptScope scope;
    std::raise(SIGHUP);
    CHECK(!scope.requested());
    CHECK((handler_of(SIGHUP) == SIG_IGN));
    CHECK((handler_of(SIGINT) != interrupt));
  }
  CHECK((handler_of(SIGINT) == interrupt));
  CHECK((handler_of(SIGTERM) == terminate));
  std::signal(SIGHUP, before);
}

TEST_CASE("interrupt: a broken pipe is not an interrupt") {
  const InterruptScope scope;
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  close(ends[0]);
  CHECK(write(ends[1], "x", 1) == -1);
  close(ends[1]);
  CHECK(!scope.requested());
}

TEST_CASE("interrupt: a run handles signals only if its options say so") {
  const auto before = handler_of(SIGINT);
  for (const bool handles : {false, true}) {
    heed::test::PlaneRun run;
    bool same = false;
    run.go({.steps = 1,
            .after_step = [&](heed::RunStep&) { same = handler_of(SIGINT) == before; },
            .handle_interrupt = handles});
    CHECK(same == !handles);
  }
  CHECK((handler_of(SIGINT) == before));
}

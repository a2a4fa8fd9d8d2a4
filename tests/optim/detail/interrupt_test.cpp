// Signals that ask a program to end.
#include <unistd.h>

#include <csignal>
#include <heed/optim/detail/interrupt.hpp>

#include "tests/support.hpp"

using heed::detail::InterruptScope;

namespace {

// A test program has handlers of its own for some.
auto handler_of(int signal) {
  struct sigaction now;
  sigaction(signal, nullptr, &now);
  return now.sa_handler;
}

}  // namespace

TEST_CASE("interrupt: each signal that asks for an end is noted, and forgotten by the next scope") {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const InterruptScope scope;
    CHECK(!scope.asked());
    std::raise(signal);
    CHECK(scope.asked());
    CHECK((handler_of(signal) == SIG_DFL));  // a second one ends the program
  }
  const InterruptScope next;
  CHECK(!next.asked());
}

TEST_CASE("interrupt: what was ignored stays ignored, and all is put back") {
  const auto before = std::signal(SIGHUP, SIG_IGN), interrupt = handler_of(SIGINT), terminate = handler_of(SIGTERM);
  {
    const InterruptScope scope;
    std::raise(SIGHUP);
    CHECK(!scope.asked());
    CHECK((handler_of(SIGHUP) == SIG_IGN));
    CHECK((handler_of(SIGINT) != interrupt));
  }
  CHECK((handler_of(SIGINT) == interrupt));
  CHECK((handler_of(SIGTERM) == terminate));
  std::signal(SIGHUP, before);
}

TEST_CASE("interrupt: a pipe that nobody reads is no signal, and a scope that is off does nothing") {
  {
    const InterruptScope scope;
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    close(ends[0]);
    CHECK(write(ends[1], "x", 1) == -1);
    close(ends[1]);
    CHECK(!scope.asked());
  }
  const auto interrupt = handler_of(SIGINT);
  const InterruptScope off(false);
  CHECK((handler_of(SIGINT) == interrupt));
}

// The clock of progress lines.
#include <chrono>
#include <heed/optim/detail/clock.hpp>
#include <thread>

#include "tests/support.hpp"

TEST_CASE("clock: seconds go forward, as many as pass") {
  const double before = heed::detail::seconds_now();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const double passed = heed::detail::seconds_now() - before;
  CHECK(passed >= 0.02);
  CHECK(passed < 20);  // a busy machine may sleep longer
}
